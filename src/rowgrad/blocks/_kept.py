"""What a session keeps between runs: results with what they were made of, and variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks.model import Block
from rowgrad.blocks.results import BlockResult


@dataclass(eq=False)
class Kept:
    """A result, and what it was made of: if that is the same again, it holds."""

    result: BlockResult
    made_of: tuple[Any, ...]
    stamp: int


@dataclass
class Variable:
    value: Array
    stamp: int
    initial: tuple[Any, ...]  # what the initial value was made of
    before: int = 0  # the stamp of the value that the step which made this one has seen


class Snapshot(NamedTuple):
    """The variables of a session at one moment, and the number of its current batch."""

    variables: Mapping[str, Array]
    batch: int = 0


@dataclass
class Step:
    """One step: what has become of each block, as it was then."""

    states: dict[str, BlockResult] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)


def definition(block: Block) -> tuple[Any, ...]:
    """What makes a block what it is, wherever it stands."""
    return (block.op, Same(block.inputs), Same(block.attributes))


class Same:
    """Compares by identity, and keeps what it compares alive, so that an identity is not used again."""

    __slots__ = ("thing",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing


def same_bits(left: Array, right: Array) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.tobytes() == right.tobytes() if left.dtype.kind != "O" else left.tolist() == right.tolist()


def frozen(array: Array) -> Array:
    """`array`, which nobody may write to from now on: results are kept, and shared with those who ask."""
    array.flags.writeable = False
    return array
