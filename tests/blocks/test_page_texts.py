"""Pages hold text, and nothing that UTF-8 cannot encode: it is refused wherever it would get in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import Page, Session
from rowgrad.blocks.literals import Literal
from rowgrad.errors import PageError, RowgradError

HALF = "a\ud800"
WAYS: dict[str, Callable[[Page], Any]] = {
    "name": lambda page: setattr(page, "name", HALF),
    "new page": lambda page: Page(HALF),
    "note": lambda page: page.note(HALF, (0, 0)),
    "note changed": lambda page: page.note(HALF, (0, 0), "note0"),
    "name of a note": lambda page: page.note("x", (0, 0), HALF),
    "constant": lambda page: page.add("Const", value=HALF),
    "constants": lambda page: page.add("Const", value=[["x"], [HALF]]),
    "typed constant": lambda page: page.add("Const", value=HALF, dtype="string"),
    "constant changed": lambda page: page.change("c", value=[HALF]),
    "array": lambda page: page.add("Const", value=np.array(["x", HALF])),
    "objects": lambda page: page.add("Const", value=np.array(["x", HALF], object)),
    "literal": lambda page: page.add("Identity", input={"value": HALF}),
    "literal made by hand": lambda page: page.add("Identity", input=Literal(HALF)),
    "bytes": lambda page: page.add("Const", value=np.array([b"x", b"\xff"])),
    "bytes in a literal": lambda page: page.add("Identity", input=Literal(np.array([b"\xff"], object), "string")),
    "path": lambda page: page.add("File", path=f"{HALF}.npy"),
    "part": lambda page: page.add("File", path="x.npz", part=HALF),
    "fed": lambda page: Session(page).run(feeds={"p": [HALF]}),
    "JSON": lambda page: Page.from_json('{"rowgrad_page": 1, "blocks": [], "name": "\\ud800"}'),
    "field of JSON": lambda page: Page.from_json('{"rowgrad_page": 1, "blocks": [], "\\ud800": 1}'),
    "GraphDef": lambda page: Page.from_graphdef(f'node {{ name: "{HALF}" op: "NoOp" }}'),
}


@pytest.fixture
def page(tmp_path: Path) -> Page:
    page = Page("p", folder=tmp_path)
    page.add("Const", "c", value=["x"])
    page.add("Placeholder", "p", dtype="string", shape=[1])
    page.note("hello", (0, 0))
    return page


@pytest.mark.parametrize("way", WAYS)
def test_halves_are_refused(page: Page, way: str) -> None:
    before = page.to_json()
    with pytest.raises(PageError, match="UTF-8") as info:
        WAYS[way](page)
    assert info.value.code == "bad-text"
    str(info.value).encode()
    assert page.to_json() == before


def test_bytes_that_are_utf_8_are_text(page: Page) -> None:
    page.add("Const", "b", value=np.array(["é".encode()]))
    assert page.constant("b").tolist() == ["é"]


def test_bytes_in_a_file_of_a_literal(page: Page, tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.array(["é".encode()]))
    np.save(tmp_path / "bad.npy", np.array([b"\xff"]))
    page.add("Identity", "i", input={"file": "good.npy"})
    assert Page.from_json(page.to_json(), folder=tmp_path) == page
    with pytest.raises(PageError, match="not UTF-8 text"):
        page.add("Identity", "j", input={"file": "bad.npy"})


def test_texts_of_graphs_must_be_utf_8() -> None:
    text = r"""
        node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_STRING } } attr { key: "value" value {
        tensor { dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: "\377" } } } }
    """
    with pytest.raises(RowgradError, match=r"c: b'\\xff' is not UTF-8 text"):
        Page.from_graphdef(text)
