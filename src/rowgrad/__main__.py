"""`python -m rowgrad` is the `rowgrad` command."""

from rowgrad.cli import main

if __name__ == "__main__":
    main()
