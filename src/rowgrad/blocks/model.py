"""The parts of a page: blocks, and the wires and literals at their pins. All are immutable; a page exchanges them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowgrad._ops import Operator
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.operators import BLOCKS, batches
from rowgrad.errors import PageError


@dataclass(frozen=True, slots=True)
class Wire:
    """The source of a wire: an output pin of a block."""

    block: str
    pin: str

    def __str__(self) -> str:
        return f"{self.block}:{self.pin}"


Source = Wire | Literal | tuple[Wire | Literal, ...]


@dataclass(frozen=True, eq=False)
class Block:
    """One operator on a page: the wires and literals at its input pins, its attributes, and its position.

    `inputs` has only connected pins; `attributes` only those that were given. `group` is the path of its group, or
    empty.
    """

    id: str
    op: str
    inputs: Mapping[str, Source]
    attributes: Mapping[str, Any]
    at: tuple[float, float]
    group: str = ""

    @property
    def operator(self) -> Operator:
        """The declaration in the catalogue; that of Batches depends on its columns."""
        return batches.declared(self.attributes) if self.op == batches.NAME else BLOCKS[self.op]

    def sources(self, pin: str) -> tuple[Wire | Literal, ...]:
        """The wires and literals at an input pin, one by one."""
        source = self.inputs.get(pin, ())
        return source if isinstance(source, tuple) else (source,)

    def wires(self) -> Iterator[tuple[str, Wire]]:
        """The wires to this block, each with its pin."""
        for pin in self.inputs:
            for item in self.sources(pin):
                if isinstance(item, Wire):
                    yield pin, item

    def missing(self) -> list[str]:
        """The unconnected input pins."""
        return [pin.name for pin in self.operator.inputs if pin.name not in self.inputs]

    def __str__(self) -> str:
        return self.id

    def __getitem__(self, pin: str) -> Wire:
        """The output `pin`, as the source of a wire: ``page.add("Relu", features=block["product"])``."""
        return Wire(self.id, output_pin(self, pin))


def output_pin(block: Block, pin: str | None) -> str:
    """The name of an output of `block`; without one, its only output is meant."""
    names = [output.name for output in block.operator.outputs]
    if pin is None and len(names) == 1:
        return names[0]
    if pin is not None and pin in names:
        return pin
    listed = ", ".join(names) or "none"
    if pin is None:
        message = f"{block.id} has {len(names)} outputs ({listed}); say which, as in {block.id}:{names[0]}."
        if not names:
            message = f"{block.id} ({block.op}) has no outputs."
    else:
        message = f"{block.id} ({block.op}) has no output {pin}; it has: {listed}."
    raise PageError(message, code="unknown-pin", block=block.id, pin=pin)


def missing_input(block: Block, pin: str) -> PageError:
    """The error of a pin with neither a wire nor a literal."""
    return PageError("it is unconnected and has no literal.", block=block.id, pin=pin,
                     code="missing-input", op=block.op)  # fmt: skip


def as_wire(text: str) -> tuple[str, str | None]:
    """``block:pin`` or ``block`` in its parts."""
    block, colon, pin = text.rpartition(":")
    return (block, pin) if colon else (pin, None)


def upstream(find: Callable[[str], Block], ids: Iterable[str]) -> dict[str, Block]:
    """The blocks `ids` and all that feeds them, by id."""
    found: dict[str, Block] = {}
    stack = list(ids)
    while stack:
        id = stack.pop()
        if id not in found:
            found[id] = find(id)
            stack.extend(wire.block for _, wire in found[id].wires())
    return found
