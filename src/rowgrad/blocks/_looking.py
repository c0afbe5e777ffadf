"""What a page holds, and what can be seen of it: blocks, wires, notes and groups at one moment.

`Core` adds the changes. A change waits for others (`alone`), and all of several changes are made, or none (`changing`).
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from rowgrad._runtime import texts
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files import folder
from rowgrad.blocks import _layout as layout
from rowgrad.blocks import groups as grouping
from rowgrad.blocks._sources import constant
from rowgrad.blocks.groups import Group, is_in
from rowgrad.blocks.inference import Inferred, Signal
from rowgrad.blocks.model import Block, Wire, as_wire, missing_input, output_pin
from rowgrad.errors import PageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Looking")

MOST_BLOCKS = 20_000
ID = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*")  # what TensorFlow allows for the names of nodes


LONGEST_NOTE = 10_000
FARTHEST = 1e9


class Note(NamedTuple):
    """A text on a page, for those who read it."""

    id: str
    text: str
    at: tuple[float, float]


class State(NamedTuple):
    """What a page holds at one moment."""

    name: str
    blocks: Mapping[str, Block]
    inferred: Mapping[str, Inferred]
    notes: Mapping[str, Note]
    columns: layout.Columns
    groups: Mapping[str, Group]


def alone(change: "Callable[Concatenate[C, P], R]") -> "Callable[Concatenate[C, P], R]":
    """A change that waits until others have ended, so that nobody sees half of one."""

    @wraps(change)
    def alone(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return change(self, *args, **kwargs)

    return alone


class Looking:
    """Blocks, wires and notes, and the groups that blocks are in."""

    def __init__(self, name: str = "page", *, folder: str | Path | None = None) -> None:
        self._lock = threading.RLock()  # one change at a time, and none while a copy is made
        self.name = name
        self.folder = Path(folder) if folder is not None else None
        self._blocks: dict[str, Block] = {}
        self._inferred: dict[str, Inferred] = {}
        self._notes: dict[str, Note] = {}
        self._groups: dict[str, Group] = {}
        self._files: dict[str, Any] = {}  # when the files of blocks were last looked at
        self._columns = layout.Columns()
        self._numbers: dict[str, int] = {}  # by operator, below which all automatic names are taken

    # Looking

    def __iter__(self) -> Iterator[Block]:
        return iter(list(self._blocks.values()))  # as it is now: the page may change while someone looks through it

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and id in self._blocks

    def __getitem__(self, id: str) -> Block:
        if id not in self:
            raise PageError(f"there is no block {id!r} on the page.", code="unknown-block", block=None, value=id)
        return self._blocks[id]

    def __eq__(self, other: object) -> bool:
        """Whether both pages would be the same file."""
        from rowgrad.blocks import pagefile

        return isinstance(other, Looking) and pagefile.to_json(self) == pagefile.to_json(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Page {self.name!r}: {len(self)} blocks>"

    def inferred(self, id: str) -> Inferred:
        """All that is known of a block before it runs."""
        return self._inferred[self[id].id]

    def signal(self, wire: "str | Wire | Block") -> Signal:
        """The type, shape and, where certain, value of an output."""
        found = self.wire(wire)
        return self._inferred[found.block].outputs[found.pin]

    def wire(self, source: "str | Wire | Block") -> Wire:
        """The output that ``block:pin`` (or ``block``, where it has one) stands for."""
        if isinstance(source, Block):
            return Wire(source.id, output_pin(self[source.id], None))
        if not isinstance(source, str | Wire):
            raise no_wire(source)
        id, pin = (source.block, source.pin) if isinstance(source, Wire) else as_wire(source)
        if self._is_group(id):
            return self._group_output(id, pin)
        return Wire(id, output_pin(self[id], pin))

    def _group_output(self, name: str, pin: str | None) -> Wire:
        found = {output.name: output.wire for output in grouping.pins(self, name).outputs}
        if pin in found or (pin is None and len(found) == 1):
            return found[pin] if pin is not None else next(iter(found.values()))
        listed = ", ".join(found) or "none"
        raise PageError(f"the group {name} has the outputs: {listed}; say which, as in {name}:pin.", block=name,
                        pin=pin, code="unknown-pin")  # fmt: skip

    def constant(self, id: str) -> Array:
        """What a Const block holds."""
        held = constant(self[id])
        if held is None:
            raise PageError("it has no value.", block=id, pin="value", code="wrong-attribute")
        return held

    def uses(self, id: str) -> list[tuple[str, str, Wire]]:
        """The blocks and pins that wires lead to from block `id`."""
        return [(block.id, pin, wire) for block in self for pin, wire in block.wires() if wire.block == id]

    @property
    def name(self) -> str:
        """The name of the page."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str):
            raise PageError(f"{name!r} is not a valid name for a page; it must be a text.", code="bad-name", value=name)
        texts.check(name, "the name of the page", PageError)
        self._name = name

    @property
    def notes(self) -> list["Note"]:
        """What was written on the page beside the blocks."""
        return list(self._notes.values())

    @property
    def groups(self) -> dict[str, Group]:
        """The groups by name, outer ones before those in them."""
        return dict(self._groups)

    def members(self, name: str) -> list[str]:
        """The blocks in a group, and in groups within it."""
        self._group(name)
        return [block.id for block in self if is_in(block.group, name)]

    def order(self) -> list[str]:
        """All ids, each after those that feed it; otherwise as they were added."""
        blocks = dict(self._blocks)
        return fed_first(blocks, lambda id: [wire.block for _, wire in blocks[id].wires()])

    def problems(self) -> list[PageError]:
        """What keeps the page from running as a whole: unconnected pins and missing files."""
        found = [group.problem for group in self._groups.values() if group.problem is not None]
        for block in self:
            if (group := self._groups.get(block.group)) is not None and group.problem is not None:
                continue  # told once, for the group
            found += [missing_input(block, pin) for pin in block.missing()]
            name = block.attributes.get("path")
            if (
                block.operator.role in ("file", "batches")
                and name is not None
                and not folder.inside(self.folder, name).is_file()
            ):
                found.append(PageError(f"there is no file {name} in the page's folder.", block=block.id, pin="path",
                                       code="no-such-file", op=block.op))  # fmt: skip
        return found

    # Going back

    @alone
    def state(self) -> "State":
        """All that is on the page now, to come back to with `restore`; later changes do not change it."""
        return State(self.name, dict(self._blocks), dict(self._inferred), dict(self._notes), self._columns.copy(),
                     dict(self._groups))  # fmt: skip

    @alone
    def restore(self, state: "State") -> None:
        """Put the page back to how it was when `state` was taken."""
        self.name = state.name
        self._blocks, self._inferred = dict(state.blocks), dict(state.inferred)
        self._notes, self._columns = dict(state.notes), state.columns.copy()
        self._groups = dict(state.groups)
        self._numbers.clear()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """All of the changes within, or none of them: an error takes them back."""
        with self._lock:
            before = self.state()
            try:
                yield
            except BaseException:
                self.restore(before)
                raise

    def copy(self) -> Self:
        """A page like this one; from now on, each changes by itself."""
        other = type(self)(self.name, folder=self.folder)
        other.restore(self.state())
        return other

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    # Inside

    def _group(self, name: str) -> Group:
        if not self._is_group(name):
            raise PageError(f"there is no group {name!r} on the page.", code="unknown-group", value=name)
        return self._groups[name]

    def _is_group(self, name: Any) -> bool:
        return isinstance(name, str) and name in self._groups

    def _is_derived(self, group: str) -> bool:
        return group in self._groups and self._groups[group].recipe is not None


def fed_first(nodes: Mapping[str, Any], feeding: Callable[[str], list[str]]) -> list[str]:
    """The nodes, each after those that feed it; otherwise as they are."""
    order: dict[str, None] = {}
    begun: set[str] = set()
    for start in nodes:
        stack = [(start, False)]
        while stack:
            node, fed = stack.pop()
            if fed:
                order[node] = None
            elif node not in begun:
                begun.add(node)
                stack.append((node, True))
                stack.extend((other, False) for other in reversed(dict.fromkeys(feeding(node))) if other not in begun)
    return list(order)


def no_wire(given: Any) -> PageError:
    """The error of what is no end of a wire."""
    return PageError(f'{given!r} is not an end of a wire; write "block:pin".', code="unknown-block", value=given)
