"""The pictures in docs/pages.md, drawn by the library itself; `generate.py` writes them."""

import sys
from pathlib import Path

from rowgrad.blocks import Page, Session

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import make_pages  # noqa: E402

IMAGES = Path("docs/images/pages")


def failing() -> Page:
    """A block that fails, one that is skipped for it, and one that does not care."""
    page = Page("a block that fails")
    page.add("Const", "table", value=make_pages.G, dtype="float32")
    page.add("SparseSegmentSum", "wrong", data="table", indices=[0, 7], segment_ids=[0, 0])
    page.add("Neg", "after", x="wrong")
    page.add("SparseSegmentMean", "right", data="table", indices=[2, 1, 0], segment_ids=[0, 0, 1])
    page.tidy()
    return page


def gradients() -> Page:
    """A pooled look-up, squared and summed, and the way back to the table."""
    page = Page("draw forward, get backward")
    page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    page.add("SparseSegmentMean", "pooled", data="table", indices=[0, 2, 2], segment_ids=[0, 0, 1],
             sparse_gradient=True)  # fmt: skip
    page.add("Square", "squared", x="pooled")
    page.add("ReduceSum", "y", input="squared", axis=[0, 1])
    page.tidy()
    page.open(page.add_gradients("y", ["table"]).group)
    return page


def pictures() -> dict[Path, str]:
    """Every picture and its text."""
    pages = {"tour": make_pages.drawn("tour"), "failing": failing(), "gradients": gradients()}
    drawn = {}
    for name, page in pages.items():
        session = Session(page)
        session.run()
        drawn[IMAGES / f"{name}.svg"] = page.to_svg(session)
    return drawn
