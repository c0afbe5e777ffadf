"""The operators on whole sparse tensors, in plain loops; `naive` has them under their names.

Sums and largest values are made in Eigen's order, which TensorFlow uses for them.
"""

from __future__ import annotations

import ctypes
import ctypes.util
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


# ---------------------------------------------------------------- two tensors


def pairs(a_indices: Array, b_indices: Array) -> list[tuple[int | None, int | None]]:
    """The entries that meet, by a merge."""
    a, b = a_indices.tolist(), b_indices.tolist()
    found: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        found.append((i if a[i] <= b[j] else None, j if b[j] <= a[i] else None))
        i, j = i + (found[-1][0] is not None), j + (found[-1][1] is not None)
    return found + [(k, None) for k in range(i, len(a))] + [(None, k) for k in range(j, len(b))]


@quiet
def sparse_add(
    a_indices: Array, a_values: Array, a_shape: Array, b_indices: Array, b_values: Array, b_shape: Array, thresh: Any
) -> tuple[Array, Array, Array]:
    A = accumulator(a_values.dtype)
    indices, values = [], []
    for i, j in pairs(a_indices, b_indices):
        total = a_values[i] if j is None else b_values[j]
        if i is not None and j is not None:
            total = (a_values[i : i + 1].astype(A) + b_values[j : j + 1].astype(A)).astype(a_values.dtype)[0]
            # The absolute value of the lowest number is itself where C has no wider type for it.
            wide = int(total) if a_values.dtype.kind in "iu" and a_values.itemsize < 4 else total
            if not np.asarray(thresh) <= np.abs(wide):
                continue
        indices.append(a_indices[i] if i is not None else b_indices[j])
        values.append(total)
    return (
        np.array(indices, np.int64).reshape(-1, len(a_shape)),
        np.array(values, a_values.dtype),
        a_shape.copy(),
    )


def matches(indices: Array, others: Array, sum_indices: Array) -> tuple[list[int | None], list[int | None]]:
    """The entry of the sum that each entry of both is part of."""
    a, b, total = indices.tolist(), others.tolist(), sum_indices.tolist()
    found: tuple[list[int | None], list[int | None]] = ([None] * len(a), [None] * len(b))
    i = j = k = 0
    while k < len(total) and (i < len(a) or j < len(b)):
        reached = True
        if i < len(a):
            if a[i] == total[k]:
                found[0][i] = k
            reached &= a[i] >= total[k]
            i += a[i] <= total[k]
        if j < len(b):
            if b[j] == total[k]:
                found[1][j] = k
            reached &= b[j] >= total[k]
            j += b[j] <= total[k]
        k += reached
    return found


def sparse_add_grad(
    backprop_val_grad: Array, a_indices: Array, b_indices: Array, sum_indices: Array
) -> tuple[Array, ...]:
    results = []
    for found in matches(a_indices, b_indices, sum_indices):
        output = np.zeros(len(found), backprop_val_grad.dtype)
        for i, k in enumerate(found):
            if k is not None:
                output[i] = backprop_val_grad[k]
        results.append(output)
    return tuple(results)


@quiet
def sparse_add_grad_grad(a_grad: Array, b_grad: Array, a_indices: Array, b_indices: Array, sum_indices: Array) -> Array:
    A = accumulator(a_grad.dtype)
    output = np.zeros(len(sum_indices), a_grad.dtype)
    for found, grad in zip(matches(a_indices, b_indices, sum_indices), (a_grad, b_grad), strict=True):
        for i, k in enumerate(found):
            if k is not None:
                output[k] = (output[k : k + 1].astype(A) + grad[i : i + 1].astype(A)).astype(a_grad.dtype)[0]
    return output


def is_left(left: Any, right: Any, largest: bool, first_of_equals: bool) -> bool:
    if left != left or right != right:
        return bool(left != left)
    if left == right:
        return first_of_equals
    return bool(left > right if largest else left < right)


def choose(largest: bool, a_indices: Array, a_values: Array, b_indices: Array, b_values: Array, rank: int) -> Any:
    found = pairs(a_indices, b_indices)
    packet = {np.dtype(np.float32): 8, np.dtype(np.float64): 4}.get(a_values.dtype, len(found) + 1)
    indices, values = np.zeros((len(found), rank), np.int64), np.zeros(len(found), a_values.dtype)
    zero = np.zeros(1, a_values.dtype)[0]
    for k, (i, j) in enumerate(found):
        left, right = zero if i is None else a_values[i], zero if j is None else b_values[j]
        indices[k] = a_indices[i] if i is not None else b_indices[j]
        values[k] = left if is_left(left, right, largest, k >= len(found) // packet * packet) else right
    return indices, values


def sparse_sparse_maximum(
    a_indices: Array, a_values: Array, a_shape: Array, b_indices: Array, b_values: Array, b_shape: Array
) -> Any:
    return choose(True, a_indices, a_values, b_indices, b_values, len(a_shape))


def sparse_sparse_minimum(
    a_indices: Array, a_values: Array, a_shape: Array, b_indices: Array, b_values: Array, b_shape: Array
) -> Any:
    return choose(False, a_indices, a_values, b_indices, b_values, len(a_shape))


def sparse_sparse_chosen(
    a_indices: Array, a_values: Array, b_indices: Array, b_values: Array, largest: bool = True
) -> tuple[Array, Array]:
    a_chosen, b_chosen = np.zeros(len(a_values), a_values.dtype), np.zeros(len(b_values), a_values.dtype)
    zero = np.zeros(1, a_values.dtype)[0]
    for i, j in pairs(a_indices, b_indices):
        left = is_left(zero if i is None else a_values[i], zero if j is None else b_values[j], largest, True)
        if i is not None:
            a_chosen[i] = left
        if j is not None:
            b_chosen[j] = not left
    return a_chosen, b_chosen


# ---------------------------------------------------------------- a sparse tensor and a dense one


def elements(indices: Array, shape: Array, dense: Array) -> Array:
    whole = np.broadcast_to(dense, tuple(int(n) for n in shape))
    return np.array([whole[tuple(index)] for index in indices], dense.dtype).reshape(len(indices))


@quiet
def cwise(name: str, sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array) -> Array:
    A = accumulator(sp_values.dtype)
    left, right = sp_values.astype(A), elements(sp_indices, sp_shape, dense).astype(A)
    if name == "add":
        return (left + right).astype(sp_values.dtype)
    if name == "mul":
        return (left * right).astype(sp_values.dtype)
    if A.kind not in "iu":
        return (left / right).astype(sp_values.dtype)
    quotients = [
        abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(left, right, strict=True)
    ]
    return np.array([q % 2 ** (8 * A.itemsize) for q in quotients], np.uint64).astype(A)


def sparse_dense_cwise_add(sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array) -> Array:
    return cwise("add", sp_indices, sp_values, sp_shape, dense)


def sparse_dense_cwise_mul(sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array) -> Array:
    return cwise("mul", sp_indices, sp_values, sp_shape, dense)


def sparse_dense_cwise_div(sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array) -> Array:
    return cwise("div", sp_indices, sp_values, sp_shape, dense)


def sparse_dense_gather(sp_indices: Array, sp_shape: Array, dense: Array) -> Array:
    return elements(sp_indices, sp_shape, dense)


@quiet
def sparse_dense_scatter(grad: Array, sp_indices: Array, sp_shape: Array, dense: Array) -> Array:
    A = accumulator(grad.dtype)
    output = np.zeros(dense.shape, grad.dtype)
    padded = output.reshape((1,) * (len(sp_shape) - dense.ndim) + dense.shape)
    for value, index in zip(grad, sp_indices, strict=True):
        place = tuple(0 if size == 1 else int(x) for x, size in zip(index, padded.shape, strict=True))
        padded[place] = (np.asarray(padded[place]).astype(A) + np.asarray(value).astype(A)).astype(grad.dtype)
    return output


@quiet
def sparse_tensor_dense_add(a_indices: Array, a_values: Array, a_shape: Array, b: Array) -> Array:
    A = accumulator(b.dtype)
    output = b.copy()
    for value, index in zip(a_values, a_indices, strict=True):
        place = tuple(int(x) for x in index)
        output[place] = (np.asarray(output[place]).astype(A) + np.asarray(value).astype(A)).astype(b.dtype)
    return output


# ---------------------------------------------------------------- softmax


def exponential(values: Array) -> Array:
    """By the library that kernels use too: NumPy has its own."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = library.exp if values.dtype == np.float64 else library.expf
    number = ctypes.c_double if values.dtype == np.float64 else ctypes.c_float
    function.argtypes, function.restype = [number], number
    return np.array([function(float(x)) for x in values], values.dtype)


@quiet
def sparse_softmax(sp_indices: Array, sp_values: Array, sp_shape: Array) -> Array:
    A = accumulator(sp_values.dtype)
    output: list[Any] = []
    for entries in groups(sp_indices, [-1], len(sp_shape)).values():
        values = sp_values[entries].astype(A)
        powers = exponential(values - reduced("max", values))
        output += (powers / eigen_leaf(powers, 32 // A.itemsize, np.add, np.add, 0)).astype(sp_values.dtype).tolist()
    return np.array(output, sp_values.dtype)
