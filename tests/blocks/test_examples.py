"""Worked examples as pages, and the symbols of operators."""

import xml.etree.ElementTree as ET

import pytest

from rowgrad.blocks import Page, worked_example
from rowgrad.blocks._picture.symbol import symbol
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import InvalidArgumentError

EACH = pytest.mark.parametrize("name", BLOCKS)


@EACH
def test_the_page_can_be_saved_and_has_the_block(name: str) -> None:
    page = worked_example(name)
    assert page[name].op == name
    assert not page.problems() or name == "File"  # its file is in no folder
    assert Page.from_json(page.to_json()) == page


@EACH
def test_a_symbol_shows_every_pin(name: str) -> None:
    picture = symbol(name)
    assert ET.fromstring(picture).tag.endswith("svg")
    for pin in (*BLOCKS[name].inputs, *BLOCKS[name].outputs):
        assert f">{pin.name}</text>" in picture


def test_an_unknown_operator() -> None:
    with pytest.raises(InvalidArgumentError, match="there is no such operator") as caught:
        worked_example("SparseSegmentMeen")
    assert caught.value.code == "unknown-operator"
