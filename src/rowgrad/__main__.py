"""`python -m rowgrad` is the `rowgrad` command."""

from rowgrad._cli import main

if __name__ == "__main__":
    main()
