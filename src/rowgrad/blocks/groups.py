"""Groups of blocks: their names, their pins to the outside, and the page as it looks while some are collapsed.

A page is a flat list of blocks; each says which group it is in. So a group changes nothing about what a page computes,
and its pins are not stored: they are the wires that cross its border.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from rowgrad._ops import Operator, Pin
from rowgrad.blocks.inference import Inferred, Signal
from rowgrad.blocks.model import Block, Source, Wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError

if TYPE_CHECKING:
    from rowgrad.blocks._looking import Looking

GRADIENTS, TRAINING, INSTANCE = "gradients", "training", "instance"


@dataclass(frozen=True)
class Recipe:
    """What a derived group is made of.

    `kind` is ``"gradients"``, of `y` to `xs`, or ``"training"``: `y` is the loss, `xs` are the variables, and
    `settings` are the numbers (or wires) of the `optimizer`; or ``"instance"``: the block of `y` is the name of the
    group that it is an instance of, and `settings` are the wires at its own inputs.
    """

    kind: str
    y: Wire
    xs: tuple[Wire, ...]
    optimizer: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def wires(self) -> Iterator[Wire]:
        """The outputs that it refers to."""
        yield from (*(() if self.kind == INSTANCE else (self.y,)), *self.xs)
        yield from (value for value in self.settings.values() if isinstance(value, Wire))

    def rewired(self, change: Callable[[Wire], Wire]) -> "Recipe":
        """The same with other wires."""
        settings = {name: change(value) if isinstance(value, Wire) else value for name, value in self.settings.items()}
        y = self.y if self.kind == INSTANCE else change(self.y)
        return replace(self, y=y, xs=tuple(map(change, self.xs)), settings=settings)


@dataclass(frozen=True)
class Group:
    """A group of blocks.

    `name` is its path (``"outer/inner"``), and `at` the position of its card while it is `collapsed`. A derived group
    has a `recipe`; `problem` is the reason if it has no blocks. `outputs` are its gradients.
    """

    name: str
    at: tuple[float, float] = (0, 0)
    collapsed: bool = False
    recipe: Recipe | None = None
    places: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # where derived blocks will stand when they are there again
    outputs: Mapping[str, Wire] = field(default_factory=dict, compare=False)
    problem: PageError | None = field(default=None, compare=False)
    made_of: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @property
    def parent(self) -> str:
        """The group that contains it, or empty."""
        return self.name.rpartition("/")[0]


class GroupInput(NamedTuple):
    """A pin of a group: an output outside, and the pins inside that it is wired to; or an unconnected pin inside."""

    name: str
    source: Wire | None
    targets: tuple[tuple[str, str], ...]
    signal: Signal


class GroupOutput(NamedTuple):
    """A pin of a group: an output inside that is used outside, or nowhere."""

    name: str
    wire: Wire
    signal: Signal


class GroupPins(NamedTuple):
    """The pins of a group to the outside."""

    inputs: tuple[GroupInput, ...]
    outputs: tuple[GroupOutput, ...]


NO_PINS = GroupPins((), ())


def is_in(path: str, group: str) -> bool:
    """Whether `path`, of a group, is `group` or within it."""
    return path == group or path.startswith(f"{group}/")


def local(id: str, group: str) -> str:
    """The name of a block within its group."""
    return id.removeprefix(f"{group}/")


def pins(page: "Looking", name: str) -> GroupPins:
    """The pins of the group `name`."""
    inside = dict.fromkeys(page.members(name))
    group = page.groups[name]
    is_instance = group.recipe is not None and group.recipe.kind == INSTANCE
    is_derived = group.recipe is not None and not is_instance
    entries: dict[Any, list[tuple[str, str]]] = {}
    for id in inside:
        block = page[id]
        for pin in block.operator.inputs:
            if pin.name not in block.inputs and not is_derived:
                entries[id, pin.name] = [(id, pin.name)]
            for source in block.sources(pin.name):
                if isinstance(source, Wire) and source.block not in inside:
                    entries.setdefault(source, []).append((id, pin.name))
    used = {wire for block in page for _, wire in block.wires()}
    outside = {wire for block in page if block.id not in inside for _, wire in block.wires()}
    exits = [wire for id in inside for pin in page[id].operator.outputs
             if (wire := Wire(id, pin.name)) in outside
             or (wire in group.outputs.values() if group.recipe is not None else wire not in used)]  # fmt: skip
    names = _Names()
    inputs = []
    for source, targets in entries.items():
        id, pin_name = targets[0]
        origin = source if isinstance(source, Wire) else None
        if is_derived and origin is not None:  # what it is derived from says more than where it goes
            label = names.free(origin.block, f"{origin.block}_{origin.pin}")
        else:
            label = names.free(pin_name, f"{local(id, name)}_{pin_name}")
        inputs.append(GroupInput(label, origin, tuple(dict.fromkeys(targets)),
                                 page.signal(origin) if origin is not None else Signal()))  # fmt: skip
    names = _Names()
    outputs = []
    for wire in exits:
        one = len(page[wire.block].operator.outputs) == 1
        label = names.free(local(wire.block, name) + ("" if one else f"_{wire.pin}"))
        outputs.append(GroupOutput(label, wire, page.signal(wire)))
    return GroupPins(tuple(inputs), tuple(outputs))


class _Names:
    def __init__(self) -> None:
        self.taken: set[str] = set()

    def free(self, *wished: str) -> str:
        """The first of `wished` that is not taken; else the last, numbered."""
        plain = [name.replace("/", "_") for name in wished]
        numbered = (f"{plain[-1]}_{number}" for number in range(1, len(self.taken) + 2))
        found = next(name for name in (*plain, *numbered) if name not in self.taken)
        self.taken.add(found)
        return found


# The page as it is shown


@dataclass(frozen=True, eq=False)
class GroupBlock(Block):
    """A collapsed group as one block, for pictures; it cannot run."""

    pins: GroupPins = NO_PINS

    @cached_property
    def operator(self) -> Operator:
        """A declaration with the pins of the group."""
        inputs = tuple(Pin(pin.name, "T", "[...]", "") for pin in self.pins.inputs)
        outputs = tuple(Pin(pin.name, "T", "[...]", "") for pin in self.pins.outputs)
        return replace(BLOCKS["Const"], name="Group", role="group", inputs=inputs, outputs=outputs, attributes=(),
                       summary="A collapsed group of blocks.")  # fmt: skip


def collapsed(page: "Looking") -> list[str]:
    """The collapsed groups that are to be seen: those within other collapsed ones are not."""
    found: list[str] = []
    for group in sorted(page.groups.values(), key=lambda group: group.name.count("/")):
        if group.collapsed and not any(is_in(group.name, other) for other in found):
            found.append(group.name)
    return found


def show(page: "Looking", shown: "Looking") -> None:
    """Put on the empty page `shown` what is to be seen of `page`: each collapsed group as one block."""
    cards = {name: pins(page, name) for name in collapsed(page)}
    owner = {id: name for name in cards for id in page.members(name)}
    exits = {output.wire: Wire(name, output.name) for name, found in cards.items() for output in found.outputs}

    def outside(source: Source) -> Source:
        if isinstance(source, tuple):
            return tuple(exits.get(item, item) if isinstance(item, Wire) else item for item in source)
        return exits.get(source, source) if isinstance(source, Wire) else source

    blocks: dict[str, Block] = {}
    inferred: dict[str, Inferred] = {}
    for block in page:
        name = owner.get(block.id)
        if name is None:
            moved = {pin: outside(source) for pin, source in block.inputs.items()}
            is_same = all(moved[pin] is source for pin, source in block.inputs.items())
            blocks[block.id] = block if is_same else replace(block, inputs=moved)
            inferred[block.id] = page.inferred(block.id)
        elif name not in blocks:
            group, found = page.groups[name], cards[name]
            inputs = {pin.name: outside(pin.source) for pin in found.inputs if pin.source is not None}
            blocks[name] = GroupBlock(name, "Group", inputs, {}, group.at, group.parent, found)
            signals = {pin.name: pin.signal for pin in found.inputs if pin.source is not None}
            inferred[name] = Inferred(signals, {pin.name: pin.signal for pin in found.outputs}, {}, {})
    for name in cards:
        if name not in blocks:  # a derived group that has no blocks now
            group = page.groups[name]
            blocks[name] = GroupBlock(name, "Group", {}, {}, group.at, group.parent, cards[name])
            inferred[name] = Inferred({}, {}, {}, {})
    shown._blocks, shown._inferred = blocks, inferred
    shown._groups = {name: group for name, group in page.groups.items()
                     if not any(is_in(name, other) for other in cards)}  # fmt: skip
