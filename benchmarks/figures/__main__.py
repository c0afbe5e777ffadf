"""`python -m figures` is what `make report` runs."""

import sys

from figures.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
