"""``python -m rowgrad_studio``: the same as ``rowgrad studio``."""

import argparse
from pathlib import Path

from rowgrad_studio.launch import serve


def main() -> None:
    """Start the studio with the arguments of this process."""
    parser = argparse.ArgumentParser(prog="python -m rowgrad_studio", description="Draw and run pages of blocks.")
    parser.add_argument("page", nargs="?", help="a page to open, in the folder")
    parser.add_argument("--folder", type=Path, default=Path(), help="where pages are opened and saved")
    parser.add_argument("--port", type=int, default=0, help="the port; 0 for any free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    given = parser.parse_args()
    serve(given.folder, given.page, port=given.port, browser=not given.no_browser)


if __name__ == "__main__":
    main()
