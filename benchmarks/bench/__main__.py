"""`python -m bench` is the benchmark."""

from bench.command import app

if __name__ == "__main__":
    app(prog_name="python -m bench")
