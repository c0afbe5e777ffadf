"""Putting the blocks of a graph on a page, so that literals are written as they were."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files import folder
from rowgrad.blocks._graphdef.reading import Node
from rowgrad.blocks._graphdef.scopes import group_blocks
from rowgrad.blocks._spelling import same_bits
from rowgrad.blocks.literals import Literal, plain
from rowgrad.blocks.model import Wire
from rowgrad.blocks.page import ID, LONGEST_NOTE, Page
from rowgrad.blocks.pagefile import MOST_NOTES
from rowgrad.errors import PageError, RowgradError


class Given(NamedTuple):
    """An array of the graph, and how it was written on a page: "typed", "typed:" and a type, "untyped", or JSON."""

    array: Array
    written: str | None

    def typed(self) -> Literal:
        """As a literal that carries its type."""
        return Literal(self.array, dtypes.name_of(self.array.dtype))

    def as_written(self) -> Literal:
        """As it was written, if that can be told."""
        if self.written in (None, "typed"):
            return self.typed()
        other = str(self.written).removeprefix("typed:")
        if other in dtypes.NUMPY and self.array.dtype.kind in "iuf":
            return Literal(self.array.astype(dtypes.NUMPY[other]), other)
        try:
            return Literal(plain(self.array) if self.written == "untyped" else json.loads(str(self.written)))
        except (ValueError, RecursionError):
            return self.typed()


class Builder:
    """A page that grows block by block."""

    def __init__(self, page: Page, nodes: Mapping[str, Node]) -> None:
        self.page = page
        self.nodes = nodes
        self.ids: dict[str, str] = {}  # of nodes; the first block, where one has several
        self.taken = {name for name in nodes if _is_id(name)}
        self.order: dict[str, list[str]] = {}
        self.placed = True

    def add(self, node: Node, op: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], *,
            numbered: bool = False) -> str:  # fmt: skip
        """Add the block of a node; gives its id."""
        id = self._id(node, numbered)
        at = position(node)
        self.placed &= at is not None
        given = {**inputs, **attributes}
        try:
            self.page.add(op, id, at=at, **_sources(given, written=True))
            fits = self._says_the_same(id, given)
        except PageError:
            fits = False
        if not fits:
            if id in self.page:
                self.page.remove(id)
            self.page.add(op, id, at=at, **_sources(given, written=False))
        self.order.setdefault(node.name, []).append(id)
        return id

    def _says_the_same(self, id: str, given: Mapping[str, Any]) -> bool:
        """Whether literals, as they were written, are what the graph has."""
        literals = self.page.inferred(id).literals
        for name, value in given.items():
            for place, item in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(item, Given) and item.written not in (None, "typed"):
                    found = literals.get((name, place))
                    found = self.page.constant(id) if found is None else np.asarray(found)
                    if not _same(found, item.array):
                        return False
        return True

    def _id(self, node: Node, numbered: bool) -> str:
        told = node.mark("id") or node.name
        if (
            node.name not in self.ids
            and _is_id(told)
            and told not in self.page
            and (told == node.name or told not in self.taken)
        ):
            self.ids[node.name] = told
            return told
        wanted = re.sub(r"[^A-Za-z0-9_./-]", "_", node.name).lstrip("_-/")[:180] or "block"
        id, number = wanted, 0
        while id in self.taken or id in self.page:
            number += 1
            id = f"{wanted}_{number}"
        self.taken.add(id)
        self.ids.setdefault(node.name, id)
        return id

    def file(self, node: Node, array: Array) -> dict[str, Any]:
        """The attributes of the File block that a constant was made from, if the file is there and is the same."""
        text = node.mark("file")
        if text is None or self.page.folder is None:
            return {}
        try:
            given = json.loads(text)
            held = folder.read(self.page.folder, given.get("path"), given.get("part"), given.get("dtype"))
        except (ValueError, AttributeError, RecursionError, RowgradError):
            return {}
        known = {name: value for name, value in given.items() if isinstance(value, str)}
        return known if set(given) <= {"path", "part", "dtype"} and _same(held, array) else {}

    def size(self, node: Node, axis: int) -> str:
        """A name for a size that the graph leaves open."""
        name = re.sub(r"\W", "_", f"{node.name}_{axis}", flags=re.ASCII)
        return name if name.isidentifier() else f"size_{name}"

    def numpy(self, source: Any) -> "np.dtype[Any]":
        """The type of a source; of one that holds no numbers, some other, which its block will refuse."""
        name = dtypes.name_of(source.array.dtype) if isinstance(source, Given) else self.page.signal(source).dtype
        return dtypes.NUMPY.get(str(name), np.dtype(np.float32))

    def finished(self) -> Page:
        """The page, in the order of the graph, laid out if that did not say where blocks stand."""
        self.page.reorder(id for name in self.nodes for id in self.order.get(name, ()))
        if not self.placed:
            self.page.tidy()
        for text, *at in self._notes():
            place = as_place(at)
            if isinstance(text, str) and 0 < len(text) <= LONGEST_NOTE and place is not None:
                self.page.note(text, place)
        group_blocks(self.page, {id: self.nodes[name] for name, ids in self.order.items() for id in ids})
        return self.page

    def _notes(self) -> list[list[Any]]:
        """The notes of the page that the graph was made from."""
        text = next((mark for node in self.nodes.values() if (mark := node.mark("notes")) is not None), "[]")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return []
        return [note for note in found[:MOST_NOTES] if isinstance(note, list) and note] if type(found) is list else []


def _sources(given: Mapping[str, Any], *, written: bool) -> dict[str, Any]:
    def source(item: Any) -> Any:
        if isinstance(item, Given):
            return item.as_written() if written else item.typed()
        return [source(each) for each in item] if isinstance(item, list) and _has_sources(item) else item

    return {name: source(value) for name, value in given.items()}


def _has_sources(items: list[Any]) -> bool:
    return any(isinstance(item, Given | Wire) for item in items)


def _same(found: Array, wanted: Array) -> bool:
    if found.dtype.kind in "OUST" or wanted.dtype.kind in "OUST":
        return same_bits(found.astype(object), wanted.astype(object))
    # A count may be of another width than TensorFlow's.
    counts = found.dtype.kind in "iu" and found.shape == wanted.shape == ()
    return same_bits(found, wanted) or (counts and bool(found == wanted))


def _is_id(name: str) -> bool:
    return ID.fullmatch(name) is not None and len(name) <= 200


def position(node: Node) -> tuple[float, float] | None:
    """Where a block stood, if the graph tells."""
    try:
        return as_place(json.loads(node.mark("at") or "null"))
    except (ValueError, RecursionError):
        return None


def as_place(value: Any) -> tuple[float, float] | None:
    """`value` as a place on a page, if it is one."""
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) in (int, float) for n in value):
        return None
    x, y = value
    return (x, y) if abs(x) < 1e9 and abs(y) < 1e9 else None
