"""Write what is derived: the reference pages of operators and modules, the stubs of functions, pictures of pages.

`make docs` calls it; with --check it writes nothing and fails if a file is not as it should be.
"""

import sys
from pathlib import Path

from api_pages import api_pages
from operator_pages import index, page
from pictures import pictures
from stubs import stubs

from rowgrad.blocks.operators import BLOCKS

ROOT = Path(__file__).parent.parent
OPERATOR_PAGES = Path("docs/operators")


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    files = {OPERATOR_PAGES / f"{operator.name}.md": page(operator) for operator in BLOCKS.values()}
    files[OPERATOR_PAGES / "index.md"] = index()
    return files | api_pages() | stubs() | pictures()


def stale() -> list[Path]:
    """The files that are not as the catalogue says, and pages of operators that are no more."""
    files = generated()
    wrong = [path for path, text in files.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    left = [path.relative_to(ROOT) for path in (ROOT / OPERATOR_PAGES).glob("*.md")]
    return wrong + [path for path in left if path not in files]


def main() -> int:
    wrong = stale()
    if "--check" in sys.argv:
        for path in wrong:
            print(f"stale: {path}; run `make docs`")
        return 1 if wrong else 0
    files = generated()
    for path in wrong:
        if path in files:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files[path])
        else:
            (ROOT / path).unlink()
    print(f"{len(files)} files are up to date, {len(wrong)} of them changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
