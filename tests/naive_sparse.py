"""The operators on whole sparse tensors, in plain loops; `naive` has them under their names.

Sums and largest values are made in Eigen's order, which TensorFlow uses for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
quiet = np.errstate(all="ignore")


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that sums are made in."""
    return np.dtype(np.float32) if dtype in (np.float16, ml_dtypes.bfloat16) else dtype


# ---------------------------------------------------------------- Eigen's order


def larger(left: Array, right: Array) -> Array:
    """Of equal values and of a NaN and a number, the left one."""
    return np.where(left < right, right, left)


def larger_later(left: Array, right: Array) -> Array:
    return np.where(right < left, left, right)


Step = Callable[[Array, Array], Array]


def eigen_leaf(x: Array, packet: int, step: Step, rest_step: Step, start: Any) -> Array:
    """Four totals of packets, then one; the numbers left over have their own, and come first."""
    whole, n = len(x) // packet * packet, len(x)
    quads = n // (4 * packet) * 4 * packet
    totals = [np.full(packet, start, x.dtype) for _ in range(4)]
    for at in range(0, quads, packet):
        totals[at // packet % 4] = step(totals[at // packet % 4], x[at : at + packet])
    total = totals[0]
    for other in totals[1:] if quads else []:
        total = step(total, other)
    for at in range(quads, whole, packet):
        total = step(total, x[at : at + packet])
    while len(total) > 1:
        total = step(total[: len(total) // 2], total[len(total) // 2 :])
    rest = np.full(1, start, x.dtype)
    for at in range(whole, n):
        rest = rest_step(rest, x[at : at + 1])
    return step(rest, total)


def eigen_sum(x: Array, packet: int, first: int = 0) -> Array:
    """Long sums are cut in two, where a packet begins."""
    if len(x) <= packet * 1024:
        return eigen_leaf(x, packet, np.add, np.add, 0)
    cut = math.ceil((first + math.ceil(len(x) / 2)) / packet) * packet - first
    return eigen_sum(x[:cut], packet, first) + eigen_sum(x[cut:], packet, first + cut)


@quiet
def reduced(name: str, values: Array) -> Any:
    A = accumulator(values.dtype)
    wide = values.astype(A)
    packet = max(32 // A.itemsize, 1)
    if name == "sum":
        return eigen_sum(wide, packet).astype(values.dtype)[0]
    low = np.iinfo(A).min if A.kind in "iu" else -np.inf
    return eigen_leaf(wide, packet, larger, larger_later, low).astype(values.dtype)[0]


# ---------------------------------------------------------------- reductions


def groups(indices: Array, axes: Any, rank: int) -> dict[tuple[int, ...], list[int]]:
    """The entries of each group, both in the order of their indices."""
    reduced_axes = {int(axis) % rank for axis in np.reshape(axes, -1)}
    kept = [axis for axis in range(rank) if axis not in reduced_axes]
    order = [*kept, *sorted(reduced_axes)]
    found: dict[tuple[int, ...], list[int]] = {}
    for i in sorted(range(len(indices)), key=lambda i: [int(indices[i, axis]) for axis in order]):
        found.setdefault(tuple(int(indices[i, axis]) for axis in kept), []).append(i)
    return found


def reduced_shape(shape: Any, axes: Any, keep_dims: bool) -> tuple[int, ...]:
    reduced_axes = {int(axis) % len(shape) for axis in np.reshape(axes, -1)}
    return tuple(
        1 if axis in reduced_axes else int(size)
        for axis, size in enumerate(shape)
        if keep_dims or axis not in reduced_axes
    )


def reduce_dense(name: str, indices: Array, values: Array, shape: Array, axes: Any, keep_dims: bool) -> Array:
    output = np.zeros(reduced_shape(shape, axes, False), values.dtype)
    for place, entries in groups(indices, axes, len(shape)).items():
        output[place] = reduced(name, values[entries])
    return output.reshape(reduced_shape(shape, axes, keep_dims))


def reduce_sparse(name: str, indices: Array, values: Array, shape: Array, axes: Any, keep_dims: bool) -> Any:
    found = groups(indices, axes, len(shape))
    after = reduced_shape(shape, axes, keep_dims)
    reduced_axes = {int(axis) % len(shape) for axis in np.reshape(axes, -1)}
    output_indices = np.zeros((len(found), len(after)), np.int64)
    output_values = np.zeros(len(found), values.dtype)
    for g, (place, entries) in enumerate(found.items()):
        kept = iter(place)
        whole = [0 if axis in reduced_axes else next(kept) for axis in range(len(shape))]
        output_indices[g] = whole if keep_dims else place
        output_values[g] = reduced(name, values[entries])
    return output_indices, output_values, np.array(after, np.int64)


def sparse_reduce_sum(
    input_indices: Array, input_values: Array, input_shape: Array, reduction_axes: Any, keep_dims: bool = False
) -> Array:
    return reduce_dense("sum", input_indices, input_values, input_shape, reduction_axes, keep_dims)


def sparse_reduce_max(
    input_indices: Array, input_values: Array, input_shape: Array, reduction_axes: Any, keep_dims: bool = False
) -> Array:
    return reduce_dense("max", input_indices, input_values, input_shape, reduction_axes, keep_dims)


def sparse_reduce_sum_sparse(
    input_indices: Array, input_values: Array, input_shape: Array, reduction_axes: Any, keep_dims: bool = False
) -> Any:
    return reduce_sparse("sum", input_indices, input_values, input_shape, reduction_axes, keep_dims)


def sparse_reduce_max_sparse(
    input_indices: Array, input_values: Array, input_shape: Array, reduction_axes: Any, keep_dims: bool = False
) -> Any:
    return reduce_sparse("max", input_indices, input_values, input_shape, reduction_axes, keep_dims)


def sparse_reduce_segments(input_indices: Array, input_shape: Array, reduction_axes: Any, dense: bool = False) -> Array:
    output = np.zeros(len(input_indices), np.int64)
    places = list(itertools.product(*map(range, reduced_shape(input_shape, reduction_axes, False)))) if dense else []
    for g, (place, entries) in enumerate(groups(input_indices, reduction_axes, len(input_shape)).items()):
        output[entries] = places.index(place) if dense else g
    return output
