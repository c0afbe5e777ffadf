"""Shapes as lists of whole numbers: what gradient rules compute with them, for frameworks that have no arrays of sizes.

PyTorch and JAX know shapes when a program is traced; the sizes in these lists may be symbols.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class RepeatedAxes(NamedTuple):
    """The axes along which each of two shapes is repeated when they are broadcast to one."""

    r0: list[int]
    r1: list[int]


def shape_of(value: Any) -> list[Any]:
    """The shape of an array, or of a list of sizes."""
    return list(value.shape) if hasattr(value, "shape") else [len(value)]


def repeated_axes(s0: Sequence[Any], s1: Sequence[Any]) -> RepeatedAxes:
    """As BroadcastGradientArgs."""
    rank = max(len(s0), len(s1))
    return RepeatedAxes(_repeated(s0, rank), _repeated(s1, rank))


def _repeated(sizes: Sequence[Any], rank: int) -> list[int]:
    missing = rank - len(sizes)
    return [axis for axis in range(rank) if axis < missing or sizes[axis - missing] == 1]


def joined(parts: Sequence[Sequence[Any]], axis: int) -> list[Any]:
    """As Concat, of lists."""
    return [size for part in parts for size in part]


def cut(sizes: Sequence[Any], begin: Sequence[int], length: Sequence[int]) -> list[Any]:
    """As Slice, of a list."""
    return list(sizes[begin[0] : begin[0] + length[0]])


def part_offset(split_dim: int, shape: Sequence[Any], *, num_split: int, index: int) -> list[Any]:
    """As SparseSplitOffset."""
    axis = split_dim % len(shape)
    offset = shape[axis] // num_split * index + min(index, shape[axis] % num_split)
    return [offset if d == axis else 0 for d in range(len(shape))]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "BroadcastGradientArgs": repeated_axes,
    "Concat": joined,
    "Shape": shape_of,
    "Slice": cut,
    "SparseSplitOffset": part_offset,
}
