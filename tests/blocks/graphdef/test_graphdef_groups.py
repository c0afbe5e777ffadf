"""Groups in GraphDefs: name scopes, both ways; derived groups come back as such if nobody has changed their blocks."""

import pytest

pytest.importorskip("tensorboard")

from rowgrad.blocks import Page, Session
from rowgrad.blocks._graphdef.reading import parse


def model() -> Page:
    page = Page("model")
    page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    page.add(
        "SparseSegmentMean", "pooled", data="table", indices=[0, 2, 2], segment_ids=[0, 0, 1], sparse_gradient=True
    )
    page.add("Square", "squared", x="pooled")
    page.add("ReduceSum", "y", input="squared", axis=[0, 1])
    page.group(["squared"], "inner")
    page.group(["pooled", "inner"], "encoder")
    page.collapse("encoder")
    return page


def test_groups_are_name_scopes() -> None:
    page = model()
    names = set(parse(page.to_graphdef()))
    assert {"encoder/pooled", "encoder/inner/squared", "table", "y"} <= names
    again = Page.from_graphdef(page.to_graphdef())
    assert again == page
    assert Session(again).run()["y"].output == Session(page).run()["y"].output


@pytest.mark.parametrize("optimizer", ["Adagrad", "Momentum"])
def test_derived_groups_come_back(optimizer: str) -> None:
    page = model()
    page.change("pooled", sparse_gradient=False)
    page.add_gradients("y", ["table"])
    page.add_training("y", None, optimizer, lr=0.25)
    again = Page.from_graphdef(page.to_graphdef())
    assert again == page
    assert again.groups["training"].recipe == page.groups["training"].recipe
    again.change("pooled", indices=[1, 1, 1])
    page.change("pooled", indices=[1, 1, 1])
    assert again == page


def test_blocks_that_somebody_changed_are_ordinary() -> None:
    page = model()
    page.change("pooled", sparse_gradient=False)
    page.add_gradients("y", ["table"])
    text = str(page.to_graphdef(text=True))
    changed = Page.from_graphdef(text.replace('op: "Mul"', 'op: "Sub"'))
    assert changed.groups["gradients"].recipe is None
    assert changed["gradients/Mul_squared"].op == "Sub"


def test_scopes_of_other_graphs_are_groups() -> None:
    page = Page()
    page.add("Const", "dense/kernel", value=[1.5])
    page.add("Neg", "dense/neg", x="dense/kernel")
    page.add("Neg", "alone/neg", x="dense/neg")
    text = str(page.to_graphdef(text=True))
    import re

    plain = re.sub(r'  attr \{\n    key: "_rowgrad_[a-z]+"\n    value \{\n(?:.*\n)*?    \}\n  \}\n', "", text)
    assert "_rowgrad" not in plain
    again = Page.from_graphdef(plain)
    assert list(again.groups) == ["dense"]
    assert again.members("dense") == ["dense/kernel", "dense/neg"]
