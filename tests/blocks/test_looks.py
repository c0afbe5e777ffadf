"""Each family of operators has its colour, whatever the order of the catalogue."""

import pytest

from rowgrad.blocks import looks
from rowgrad.blocks.operators import FAMILIES


def test_each_family_has_a_colour_and_nothing_else_has() -> None:
    assert set(looks.TINTS) == set(FAMILIES)


def test_a_new_family_recolours_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {family: looks.tint(family) for family in FAMILIES}
    order = ["first", *reversed(FAMILIES)]
    titles = {**FAMILIES, "first": "First"}
    monkeypatch.setattr("rowgrad._ops.FAMILIES", {name: titles[name] for name in order})
    monkeypatch.setattr(looks, "FAMILIES", {name: titles[name] for name in order}, raising=False)
    assert {family: looks.tint(family) for family in before} == before


def test_a_family_without_a_colour_is_named() -> None:
    with pytest.raises(LookupError, match="the family 'first' has no colour"):
        looks.tint("first")
