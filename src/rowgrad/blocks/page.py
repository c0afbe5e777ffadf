"""Pages: blocks and wires, checked with every change.

A page is always sound: what does not fit is refused when it is drawn, and the page stays as it was. A block may be
incomplete, with pins that nothing is at yet; `problems` lists those. Blocks are immutable and are exchanged as a
whole, so a session can run on what it has seen while the page goes on changing.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from rowgrad._ops import Operator
from rowgrad._runtime import texts
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files import folder
from rowgrad.blocks import _layout as layout
from rowgrad.blocks._sources import constant, renamed, sort_out, without
from rowgrad.blocks.inference import Inferred, Signal, infer_block
from rowgrad.blocks.model import Block, Source, Wire, as_wire, missing_input, output_pin
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError, RowgradError

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session

P = ParamSpec("P")
R = TypeVar("R")

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


def _alone(change: "Callable[Concatenate[Page, P], R]") -> "Callable[Concatenate[Page, P], R]":
    """A change that waits until others have ended, so that nobody sees half of one."""

    @wraps(change)
    def alone(self: "Page", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return change(self, *args, **kwargs)

    return alone


class Page:
    """A page of blocks.

    Parameters
    ----------
    name : str
        What the page is called.
    folder : str or path, optional
        Where the files are that it names; `load` and `save` set it.

    Examples
    --------
    >>> from rowgrad.blocks import Page, Session
    >>> page = Page("pooled mean")
    >>> _ = page.add("Const", id="grad", value=[[1, 2, 3], [4, 4, 2], [3, 1, 5]], dtype="float32")
    >>> _ = page.add("SparseSegmentMeanGrad", grad="grad:output", indices=[0, 1, 2], segment_ids=[2, 2, 2],
    ...              output_dim0=3)
    >>> print(page.signal("SparseSegmentMeanGrad:output"))
    float32 [3, 3]
    >>> print(Session(page).run()["SparseSegmentMeanGrad"].output)
    [[1.         0.33333334 1.6666667 ]
     [1.         0.33333334 1.6666667 ]
     [1.         0.33333334 1.6666667 ]]
    """

    def __init__(self, name: str = "page", *, folder: str | Path | None = None) -> None:
        self._lock = threading.RLock()  # one change at a time, and none while a copy is made
        self.name = name
        self.folder = Path(folder) if folder is not None else None
        self._blocks: dict[str, Block] = {}
        self._inferred: dict[str, Inferred] = {}
        self._notes: dict[str, Note] = {}
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

        return isinstance(other, Page) and pagefile.to_json(self) == pagefile.to_json(other)

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
            raise _no_wire(source)
        id, pin = (source.block, source.pin) if isinstance(source, Wire) else as_wire(source)
        return Wire(id, output_pin(self[id], pin))

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
        """What the page is called."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str):
            raise PageError(f"{name!r} is no name for a page; it must be a text.", code="bad-name", value=name)
        texts.check(name, "the name of the page", PageError)
        self._name = name

    @property
    def notes(self) -> list["Note"]:
        """What was written on the page beside the blocks."""
        return list(self._notes.values())

    def order(self) -> list[str]:
        """All ids, each after those that feed it; otherwise as they were added."""
        order: dict[str, None] = {}
        blocks = dict(self._blocks)
        for start in blocks:
            stack = [] if start in order else [(start, False)]
            while stack:
                id, fed = stack.pop()
                if fed:
                    order[id] = None
                elif id not in order:
                    stack.append((id, True))
                    feeding = dict.fromkeys(wire.block for _, wire in blocks[id].wires())
                    stack.extend((other, False) for other in reversed(feeding) if other not in order)
        return list(order)

    def problems(self) -> list[PageError]:
        """What keeps the page from running as a whole: pins that nothing is at, and files that are not there."""
        found = []
        for block in self:
            found += [missing_input(block, pin) for pin in block.missing()]
            name = block.attributes.get("path")
            if block.operator.role == "file" and not folder.inside(self.folder, name).is_file():
                found.append(PageError(f"there is no file {name} in the page's folder.", block=block.id, pin="path",
                                       code="no-such-file", op=block.op))  # fmt: skip
        return found

    # Changing

    @_alone
    def add(self, /, op: str, id: str | None = None, *, at: tuple[float, float] | None = None, **given: Any) -> Block:
        """Add a block; inputs and attributes by name.

        Parameters
        ----------
        op : str
            An operator of the catalogue.
        id : str, optional
            Its name on this page; by default the operator's, numbered if it is taken.
        at : pair of numbers, optional
            Where it stands; by default right of what feeds it.
        **given
            For an input: a wire (``"block:pin"``, a block, or ``block["pin"]``) or a literal (numbers, lists, arrays,
            or ``{"value": …, "dtype": …}``, which also writes a text). Inputs may be left out and wired later.

        Returns
        -------
        Block

        Raises
        ------
        PageError
            The operator, a pin or an attribute does not exist, or what is given does not fit. Nothing is added.
        """
        operator = _operator(op)
        id = self._new_id(op) if id is None else self._free_id(id)
        if len(self) >= MOST_BLOCKS:
            raise PageError(f"a page holds at most {MOST_BLOCKS} blocks.", code="too-large", block=id)
        inputs, attributes = sort_out(self, id, operator, given)
        attributes = {name: value for name, value in attributes.items() if value is not None}
        block = Block(id, op, inputs, attributes, _place(id, at) if at is not None else (0, 0))
        inferred = self._infer(block)
        if at is None:
            feeding = [layout.column_of(self[wire.block].at[0]) + 1 for _, wire in block.wires()]
            block = replace(block, at=self._columns.place(max(feeding, default=0), block))
        else:
            self._columns.occupy(block)
        self._check_updates(block)
        self._blocks[id] = block
        self._inferred[id] = inferred
        return block

    @_alone
    def change(self, id: str, /, **given: Any) -> Block:
        """Set inputs and attributes of a block; None takes an attribute back to its default."""
        block = self[id]
        inputs, attributes = sort_out(self, id, block.operator, given)
        kept = {name: value for name, value in {**block.attributes, **attributes}.items() if value is not None}
        with self.changing():
            self._exchange(replace(block, inputs=_ordered(block, {**block.inputs, **inputs}), attributes=kept))
        return self[id]

    @_alone
    def connect(self, source: "str | Wire | Block", target: str) -> None:
        """Draw a wire from an output, ``block:pin``, to an input, ``block:pin``; where it takes many, one more."""
        id, pin = self._target(target)
        wire = self.wire(source)
        many = next(p.many for p in self[id].operator.inputs if p.name == pin)
        before = self[id].inputs.get(pin, ())
        self.change(id, **{pin: [*(before if isinstance(before, tuple) else ()), wire] if many else wire})

    @_alone
    def disconnect(self, target: str) -> None:
        """Take away what is at an input, ``block:pin``: a wire or a literal."""
        id, pin = self._target(target)
        block = self[id]
        if pin in block.inputs:
            with self.changing():
                self._exchange(replace(block, inputs={k: v for k, v in block.inputs.items() if k != pin}))

    @_alone
    def remove(self, id: str) -> None:
        """Take a block off the page, with its wires."""
        users = {user for user, _, _ in self.uses(self[id].id)}
        with self.changing():
            for user in users:
                self._blocks[user] = replace(self[user], inputs=without(self[user].inputs, id))
            del self._blocks[id], self._inferred[id]
            self._numbers.clear()
            self._recheck(users)

    @_alone
    def drop(self, ids: Iterable[str]) -> None:
        """Take blocks off the page from which no wires lead to others that stay."""
        dropped = {self[id].id for id in ids}
        if used := next((wire for block in self for _, wire in block.wires()
                         if wire.block in dropped and block.id not in dropped), None):  # fmt: skip
            raise PageError("wires lead from it to others.", block=used.block, pin=used.pin, code="in-use")
        for id in dropped:
            del self._blocks[id], self._inferred[id]
        self._numbers.clear()

    @_alone
    def rename(self, id: str, new: str) -> None:
        """Give a block another name; wires follow."""
        if new == self[id].id:
            return
        self._free_id(new)
        with self.changing():
            blocks = {}
            for block in self:
                if any(wire.block == id for _, wire in block.wires()):
                    inputs = {pin: renamed(source, id, new) for pin, source in block.inputs.items()}
                    block = replace(block, inputs=inputs)
                if block.id == id:
                    block = replace(block, id=new)
                blocks[block.id] = block
            self._blocks = blocks
            self._numbers.clear()
            self._inferred = {}
            self._recheck(blocks)

    @_alone
    def move(self, id: str, x: float, y: float) -> None:
        """Put a block elsewhere."""
        self._blocks[id] = replace(self[id], at=_place(id, (x, y)))
        self._columns.occupy(self._blocks[id])

    @_alone
    def note(self, text: str, at: tuple[float, float], id: str | None = None) -> "Note | None":
        """Write a note on the page, or over the one called `id`; an empty text takes it away."""
        if id is None:
            id = next(name for n in range(len(self._notes) + 1) if (name := f"note{n}") not in self._notes)
        if not isinstance(text, str) or len(text) > LONGEST_NOTE:
            raise PageError(f"a note is a text of at most {LONGEST_NOTE} characters.", code="bad-note", value=id)
        texts.check(text, "the note", PageError)
        texts.check(id, "the name of the note", PageError)
        if text:
            self._notes[id] = Note(id, text, _place(id, at))
        else:
            self._notes.pop(id, None)
        return self._notes.get(id)

    @_alone
    def reorder(self, ids: Iterable[str]) -> None:
        """Let blocks follow each other as `ids` do, in lists and in the file; the others come after."""
        first = [id for id in ids if id in self]
        self._blocks = {id: self._blocks[id] for id in dict.fromkeys([*first, *self._blocks])}

    @_alone
    def tidy(self, ids: Iterable[str] | None = None) -> None:
        """Arrange blocks in columns, each right of what feeds it: all, or `ids` below the others."""
        for id, at in layout.arranged(self, ids).items():
            self._blocks[id] = replace(self._blocks[id], at=at)
        self._columns = layout.Columns()
        for block in self:
            self._columns.occupy(block)

    @_alone
    def state(self) -> "State":
        """All that is on the page now, to come back to with `restore`; later changes do not change it."""
        return State(self.name, dict(self._blocks), dict(self._inferred), dict(self._notes), self._columns.copy())

    @_alone
    def restore(self, state: "State") -> None:
        """Put the page back to how it was when `state` was taken."""
        self.name = state.name
        self._blocks, self._inferred = dict(state.blocks), dict(state.inferred)
        self._notes, self._columns = dict(state.notes), state.columns.copy()
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

    def copy(self) -> "Page":
        """A page like this one; from now on, each changes by itself."""
        other = Page(self.name, folder=self.folder)
        other.restore(self.state())
        return other

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    # Gradients, files and exports; each lives in a module of its own

    def add_gradients(self, y: "str | Wire | Block", xs: "Iterable[str | Wire | Block]") -> dict[str, Any]:
        """Add the blocks that compute the gradient of the sum of `y` to each of `xs`, wired and laid out.

        Returns
        -------
        dict
            For each of `xs`, as it was given, the output that is its gradient, ``"block:pin"``; a `RowGradient` of two
            such outputs where every way to it is a pooled look-up with `sparse_gradient` set.
        """
        from rowgrad.blocks._gradients import add_gradients

        return add_gradients(self, y, list(xs))

    def save(self, path: str | Path) -> None:
        """Write the page to a file, as a whole or not at all; large arrays go to files beside it."""
        from rowgrad.blocks import pagefile

        pagefile.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Page":
        """Read a page from a file."""
        from rowgrad.blocks import pagefile

        return pagefile.load(Path(path))

    def to_json(self) -> str:
        """The page as the text of a page file, with all arrays in it."""
        from rowgrad.blocks import pagefile

        return pagefile.to_json(self)

    @classmethod
    def from_json(cls, text: str, *, folder: str | Path | None = None) -> "Page":
        """The page that the text of a page file holds."""
        from rowgrad.blocks import pagefile

        return pagefile.from_json(text, folder=Path(folder) if folder is not None else None)

    def to_python(self) -> str:
        """A script that computes what the page does, without pages and sessions; it gives the same bits."""
        from rowgrad.blocks._python import to_python

        return to_python(self)

    def to_graphdef(self, text: bool = False) -> bytes | str:
        """The page as a TensorFlow GraphDef, binary or as text; for `from_graphdef`, and for TensorFlow itself."""
        from rowgrad.blocks._graphdef import to_graphdef

        return to_graphdef(self, text=text)

    @classmethod
    def from_graphdef(cls, data: bytes | str, name: str | None = None, *, folder: str | Path | None = None) -> "Page":
        """The page that a GraphDef holds, binary or as text; `name` is what the page will be called.

        Files went into the graph as constants; those that are in `folder` and still the same are files again.
        """
        from rowgrad.blocks._graphdef import from_graphdef

        return from_graphdef(data, name, Path(folder) if folder is not None else None)

    def to_svg(self, session: "Session | None" = None) -> str:
        """The picture of the page as SVG, with the results of `session`, if given; it can be opened as a page again."""
        from rowgrad.blocks.svg import to_svg

        return to_svg(self, session)

    def to_png(self, session: "Session | None" = None, scale: float = 2) -> bytes:
        """The picture of the page as PNG, `scale` pixels to a unit; needs ``pip install 'rowgrad[png]'``."""
        from rowgrad.blocks.png import to_png

        return to_png(self, session, scale)

    # Inside

    def _target(self, target: str) -> tuple[str, str]:
        if not isinstance(target, str):
            raise _no_wire(target)
        id, pin = as_wire(target)
        block = self[id]
        names = [p.name for p in block.operator.inputs]
        if pin not in names:
            raise PageError(
                f"{block.op} has no input {pin}; it has: {', '.join(names) or 'none'}.",
                block=id, pin=pin, code="unknown-pin", op=block.op,
            )  # fmt: skip
        return id, str(pin)

    def _new_id(self, op: str) -> str:
        number = self._numbers.get(op, 0)
        while (id := f"{op}_{number}" if number else op) in self._blocks:
            number += 1
        self._numbers[op] = number
        return id

    def _free_id(self, id: str) -> str:
        if not isinstance(id, str) or not ID.fullmatch(id) or len(id) > 200:
            raise PageError(
                f"{id!r} is no name for a block: letters, digits and _ . / - are allowed, beginning with a letter, a "
                "digit or a dot.", code="bad-id", value=id,
            )  # fmt: skip
        if id in self._blocks:
            raise PageError(f"there is a block {id!r} already; names are unique on a page.", code="duplicate-id",
                            block=id)  # fmt: skip
        return id

    def _infer(self, block: Block) -> Inferred:
        held = None
        try:
            if block.operator.role == "const":
                held = constant(block)
            elif block.operator.role == "file":
                held = folder.read(self.folder, block.attributes.get("path"), block.attributes.get("part"),
                                   block.attributes.get("dtype"))  # fmt: skip
        except RowgradError as error:
            if error.code == "no-such-file":
                return infer_block(block, self.signal)  # a page can be read where its data is not; running will tell
            pin = "value" if block.operator.role == "const" else "path"
            raise PageError.of(error, block.id, block.op, error.argument or pin) from error
        return infer_block(block, self.signal, held)

    def _check_updates(self, block: Block) -> None:
        """An update must be of a variable, and of one that nothing else updates."""
        for pin in block.operator.updates:
            source = block.inputs.get(pin)
            if source is None:
                continue
            if not isinstance(source, Wire) or self[source.block].operator.role != "variable":
                raise PageError("it must be wired from a Variable, whose value it updates.", block=block.id, pin=pin,
                                code="not-a-variable", op=block.op)  # fmt: skip
            for other in self:
                if other.id != block.id and any(other.inputs.get(name) == source for name in other.operator.updates):
                    raise PageError(f"{source.block} is updated by {other.id} already; a step has one update for each.",
                                    block=block.id, pin=pin, code="updated-twice", op=block.op)  # fmt: skip

    def _exchange(self, block: Block) -> None:
        self._refuse_cycle(block)
        self._check_updates(block)
        self._blocks[block.id] = block
        self._recheck([block.id])

    def _refuse_cycle(self, block: Block) -> None:
        for pin, wire in block.wires():
            seen: set[str] = set()
            stack = [wire.block]
            while stack:
                id = stack.pop()
                if id == block.id:
                    raise PageError(f"a wire from {wire} would close a cycle.", block=block.id, pin=pin, code="cycle",
                                    op=block.op)  # fmt: skip
                if id not in seen:
                    seen.add(id)
                    stack.extend(other.block for _, other in self[id].wires())

    def _recheck(self, changed: Iterable[str]) -> None:
        """Infer the blocks that have changed and, where their outputs are not what they were, those that follow."""
        dirty = set(changed)
        for id in self.order():
            block = self._blocks[id]
            if id in dirty or any(wire.block in dirty for _, wire in block.wires()):
                before = self._inferred.get(id)
                self._inferred[id] = self._infer(block)
                if before is not None and _same_outputs(before, self._inferred[id]):
                    dirty.discard(id)
                else:
                    dirty.add(id)


def _no_wire(given: Any) -> PageError:
    return PageError(f'{given!r} is no end of a wire; write "block:pin".', code="unknown-block", value=given)


def _operator(op: str) -> Operator:
    if not isinstance(op, str) or op not in BLOCKS:
        close = [name for name in BLOCKS if name.casefold() == str(op).casefold()]
        hint = f" Did you mean {close[0]}?" if close else ""
        raise PageError(f"there is no operator {op!r} in the catalogue.{hint}", code="unknown-operator", value=op)
    return BLOCKS[op]


def _place(id: str, at: Any) -> tuple[float, float]:
    """Where a block or a note is to stand: two numbers that a picture can be drawn with."""
    if isinstance(at, tuple | list) and len(at) == 2:
        x, y = at
        if all(isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < FARTHEST for n in (x, y)):
            return (x, y)
    raise PageError(f"it cannot stand at {at!r}; a place is two numbers.", block=id, code="bad-place", value=at)


def _ordered(block: Block, inputs: Mapping[str, Source]) -> dict[str, Source]:
    return {pin.name: inputs[pin.name] for pin in block.operator.inputs if pin.name in inputs}


def _same_outputs(left: Inferred, right: Inferred) -> bool:
    def known(signal: Signal) -> Any:
        value = None if signal.value is None else signal.value.tolist()
        return (signal.dtype, signal.shape, value)

    return {k: known(v) for k, v in left.outputs.items()} == {k: known(v) for k, v in right.outputs.items()}
