"""Reductions of rows by segment in plain loops: a part of `naive`, which has their names too."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from naive_types import Array, accumulator, quiet


def larger_later(total: Any, value: Any) -> Any:
    return np.where(value < total, total, value)


def larger_earlier(total: Any, value: Any) -> Any:
    return np.where(total < value, value, total)


def smaller_later(total: Any, value: Any) -> Any:
    return np.where(total < value, total, value)


def smaller_earlier(total: Any, value: Any) -> Any:
    return np.where(value < total, value, total)


def product(total: Any, value: Any) -> Any:
    """The product, of complex numbers part by part."""
    if value.dtype.kind != "c":
        return total * value
    found = np.empty(np.shape(value), value.dtype)
    found.real = total.real * value.real - total.imag * value.imag
    found.imag = total.real * value.imag + total.imag * value.real
    return found


PACKED = {"sum": np.add, "mean": np.add, "prod": product, "max": larger_earlier, "min": smaller_earlier}
PLAIN = {"sum": np.add, "mean": np.add, "sqrt_n": np.add, "prod": product, "max": larger_later, "min": smaller_later}


def ends(kind: str, dtype: np.dtype[Any], finite: bool) -> Any:
    """The value that a reduction begins with."""
    if kind not in ("max", "min"):
        return 1 if kind == "prod" else 0
    info = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)
    if finite or dtype.kind in "iu":
        return info.min if kind == "max" else info.max
    return -np.inf if kind == "max" else np.inf


def reduce_column(rows: Array, is_packed: bool, kind: str, start: Any) -> Any:
    """One column of a sorted segment of two or more rows."""
    n = len(rows)
    step = PACKED[kind] if is_packed else PLAIN[kind]
    if not is_packed or n < 16 or kind not in ("sum", "prod"):
        total = start
        for value in rows:
            total = step(total, value)
        return total
    totals = [start] * 4
    for i in range(n // 4 * 4):
        totals[i % 4] = step(totals[i % 4], rows[i])
    total = step(step(step(totals[0], totals[1]), totals[2]), totals[3])
    for value in rows[n // 4 * 4 :]:
        total = step(total, value)
    return total


@quiet
def reduce_sorted(kind: str, data: Array, segment_ids: Array, num_segments: Any) -> Array:
    rows = int(segment_ids[-1]) + 1 if len(segment_ids) else 0
    empty = 1 if kind == "prod" else 0
    if num_segments is not None:
        rows, empty = int(num_segments), ends(kind, data.dtype, finite=True)
    T, A = data.dtype, accumulator(data.dtype)
    flat = data.reshape(len(data), math.prod(data.shape[1:]))
    output = np.full((rows, flat.shape[1]), empty, T)
    packet = 8 if T.itemsize == 2 else 32 // T.itemsize
    packed = flat.shape[1] // packet * packet
    if kind in ("sum", "prod", "mean") and (T.itemsize == 2 or kind == "mean"):
        packed = 0
    for s in range(rows):
        members = flat[[i for i in range(len(flat)) if segment_ids[i] == s]]
        if len(members) == 1:
            output[s] = members[0]
        elif len(members):
            start = np.array(ends(kind, T, finite=False), A)[()]
            for c in range(flat.shape[1]):
                total = reduce_column(members[:, c].astype(A), c < packed, kind, start)
                output[s, c] = mean_of(total, len(members), T) if kind == "mean" else np.asarray(total).astype(T)
    return output.reshape(rows, *data.shape[1:])


def mean_of(total: Any, n: int, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":  # cut towards 0; the count is of the same type
        total, wrapped = int(total), int(np.array(n).astype(dtype)) or n
        sign = -1 if (total < 0) != (wrapped < 0) else 1
        return np.array(sign * (abs(total) // abs(wrapped))).astype(dtype)
    if dtype.kind == "c":
        return dtype.type(complex(total.real / total.real.dtype.type(n), total.imag / total.real.dtype.type(n)))
    return (total / total.dtype.type(n)).astype(dtype)


def segment_sum(data: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return reduce_sorted("sum", data, segment_ids, num_segments)


def segment_mean(data: Array, segment_ids: Array) -> Array:
    return reduce_sorted("mean", data, segment_ids, None)


def segment_prod(data: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return reduce_sorted("prod", data, segment_ids, num_segments)


def segment_max(data: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return reduce_sorted("max", data, segment_ids, num_segments)


def segment_min(data: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return reduce_sorted("min", data, segment_ids, num_segments)


@quiet
def reduce_unsorted(kind: str, data: Array, segment_ids: Array, num_segments: Any) -> Array:
    T, A = data.dtype, accumulator(data.dtype)
    rows, tail = int(num_segments), data.shape[np.ndim(segment_ids) :]
    totals = np.full((rows, *tail), ends(kind, T, finite=True), A)
    counts = np.zeros(rows, int)
    for place in np.ndindex(np.shape(segment_ids)):
        s = int(np.asarray(segment_ids)[place])
        if s >= 0 and data.size:
            totals[s] = PLAIN[kind](totals[s], data[place].astype(A))
            counts[s] += 1
    if kind in ("mean", "sqrt_n"):
        real = A.type(0).real.dtype
        for s in range(rows):
            divisor = real.type(math.sqrt(max(counts[s], 1)) if kind == "sqrt_n" else max(counts[s], 1))
            parts = totals[s : s + 1].reshape(-1).view(real) / divisor
            totals[s] = parts.view(A).reshape(tail)
    return totals.astype(T)


def unsorted_segment_sum(data: Array, segment_ids: Array, num_segments: Any) -> Array:
    return reduce_unsorted("sum", data, segment_ids, num_segments)


def unsorted_segment_mean(data: Array, segment_ids: Array, num_segments: Any) -> Array:
    return reduce_unsorted("mean", data, segment_ids, num_segments)


def unsorted_segment_sqrt_n(data: Array, segment_ids: Array, num_segments: Any) -> Array:
    return reduce_unsorted("sqrt_n", data, segment_ids, num_segments)


def unsorted_segment_prod(data: Array, segment_ids: Array, num_segments: Any) -> Array:
    return reduce_unsorted("prod", data, segment_ids, num_segments)


def unsorted_segment_max(data: Array, segment_ids: Array, num_segments: Any) -> Array:
    return reduce_unsorted("max", data, segment_ids, num_segments)


def unsorted_segment_min(data: Array, segment_ids: Array, num_segments: Any) -> Array:
    return reduce_unsorted("min", data, segment_ids, num_segments)


@quiet
def take_rows(kind: str, grad: Array, segment_ids: Array) -> Array:
    output = np.zeros((*np.shape(segment_ids), *grad.shape[1:]), grad.dtype)
    real = accumulator(grad.dtype).type(0).real.dtype
    for place in np.ndindex(np.shape(segment_ids)):
        s = int(segment_ids[place])
        if s >= 0:
            n = int(np.sum(segment_ids == s))
            divisor = real.type({"sum": 1, "mean": n, "sqrt_n": math.sqrt(n)}[kind])
            row = grad[s].astype(accumulator(grad.dtype)).reshape(-1).view(real) / divisor
            output[place] = row.view(accumulator(grad.dtype)).reshape(grad.shape[1:]).astype(grad.dtype)
    return output


def segment_sum_grad(grad: Array, segment_ids: Array) -> Array:
    return take_rows("sum", grad, segment_ids)


def segment_mean_grad(grad: Array, segment_ids: Array) -> Array:
    return take_rows("mean", grad, segment_ids)


def segment_sqrt_n_grad(grad: Array, segment_ids: Array) -> Array:
    return take_rows("sqrt_n", grad, segment_ids)


def equal_rows(data: Array, output: Array, segment_ids: Array, s: int, place: tuple[int, ...]) -> list[int]:
    """The rows of segment s that are equal to its output at one place of a row."""
    return [i for i in range(len(data)) if segment_ids[i] == s and data[(i, *place)] == output[(s, *place)]]


@quiet
def segment_max_grad(grad: Array, data: Array, output: Array, segment_ids: Array) -> Array:
    A = accumulator(grad.dtype)
    result = np.zeros(data.shape, grad.dtype)
    for s in range(len(output)):
        for place in np.ndindex(data.shape[1:]):
            members = equal_rows(data, output, segment_ids, s, place)
            for i in members:
                result[(i, *place)] = (grad[(s, *place)].astype(A) / A.type(len(members))).astype(grad.dtype)
    return result


@quiet
def segment_max_grad_grad(grad: Array, data: Array, output: Array, segment_ids: Array) -> Array:
    A = accumulator(grad.dtype)
    result = np.zeros(output.shape, grad.dtype)
    for s in range(len(output)):
        for place in np.ndindex(data.shape[1:]):
            members = equal_rows(data, output, segment_ids, s, place)
            total = A.type(0)
            for i in members:
                total = total + grad[(i, *place)].astype(A)
            if members:
                result[(s, *place)] = (total / A.type(len(members))).astype(grad.dtype)
    return result


@quiet
def segment_prod_grad(grad: Array, data: Array, segment_ids: Array) -> Array:
    A = accumulator(grad.dtype)
    result = np.zeros(data.shape, grad.dtype)
    for i in range(len(data)):
        s = int(segment_ids[i])
        for place in np.ndindex(data.shape[1:]) if s >= 0 else ():
            members = [data[(j, *place)].astype(A) for j in range(len(data)) if segment_ids[j] == s]
            product = A.type(1)
            for value in members:
                product = product * (value if value != 0 else A.type(1))
            zeros = sum(value == 0 for value in members)
            here = data[(i, *place)].astype(A)
            others = product / here if zeros == 0 else product if zeros == 1 and here == 0 else A.type(0)
            result[(i, *place)] = (grad[(s, *place)].astype(A) * others).astype(grad.dtype)
    return result
