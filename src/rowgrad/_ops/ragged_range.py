"""Ranges of numbers, one in each row: what RaggedRange computes, which `ragged` declares.

Whole numbers are counted and added up by kernels; floats are added up step by step, as TensorFlow does.
"""

from functools import cache
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.pins import INT64_MAX
from rowgrad._ops.results import RaggedRows
from rowgrad._runtime.dtypes import NUMPY, Array
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

INT64, INT32_MAX = np.dtype(np.int64), 2**31 - 1
VECTOR = 64  # bytes that are counted up at once


def ragged_range(starts: Array, limits: Array, deltas: Array, *, Tsplits: str = "int64") -> RaggedRows:
    if starts.ndim != 1 or not starts.shape == limits.shape == deltas.shape:
        starts, limits, deltas = _of_one_length({"starts": starts, "limits": limits, "deltas": deltas})
    rows, dtype, splits_type = starts.size, starts.dtype, NUMPY[Tsplits]
    if dtype.kind in "iu":
        splits = _whole_splits(starts, limits, deltas, splits_type)
    else:
        if (deltas == 0).any():
            raise _no_step(deltas, int((deltas == 0).argmax()))
        counts = _range_sizes(starts, limits, deltas)
        splits = np.zeros(rows + 1, np.int64)
        np.cumsum(counts, out=splits[1:])
        _check_countable(int(splits[-1]), splits_type)
        splits = splits.astype(splits_type)
        if dtype.itemsize == 2:
            return RaggedRows(splits, _range_values(starts, deltas, counts))
    values = allocate(splits.item(-1), dtype, argument="limits")
    workers = Workers(values.nbytes)
    if dtype.kind in "iu":
        numbers = _numbers(dtype)
        lanes = kernels.lanes.lanes_for(dtype, numbers.size)
        workers.run(kernels.ragged_rows.count_up, splits, rows, starts, deltas, lanes, numbers, values,
                    key=(dtype, splits_type))  # fmt: skip
    else:
        workers.run(kernels.ragged_rows.add_up, splits, rows, starts, deltas, values)
    return RaggedRows(splits, values)


def _of_one_length(given: dict[str, Array]) -> list[Array]:
    """The arrays as vectors: scalars are repeated, as often as vectors have elements."""
    lengths = set()
    for name, array in given.items():
        if array.ndim > 1:
            checks.rank(name, array, 1)
        if array.ndim == 1:
            lengths.add(array.size)
    if len(lengths) > 1:
        sizes = ", ".join(f"{name} {list(array.shape)}" for name, array in given.items())
        raise InvalidArgumentError(
            f"the shapes are {sizes}; vectors must be of one length.", code="length-mismatch", argument="limits"
        )
    rows = lengths.pop() if lengths else 1
    return [array if array.ndim else np.broadcast_to(array, (rows,)).copy() for array in given.values()]


@cache
def _numbers(dtype: "np.dtype[Any]") -> Array:
    """The numbers from 0 on that fill a vector."""
    return np.arange(VECTOR // dtype.itemsize, dtype=dtype)


def _whole_splits(begin: Array, end: Array, step: Array, splits_type: "np.dtype[Any]") -> Array:
    """The row splits of ranges of whole numbers."""
    rows = begin.size
    splits = np.empty(rows + 1, splits_type)
    workers = Workers(4 * splits.nbytes)
    most = INT64_MAX // max(rows, 1) - 1
    whole = workers.run(kernels.ragged_rows.range_splits, rows, begin, end, step, most, splits,
                        np.empty(2 * workers.chunks, INT64), key=(begin.dtype, splits_type))  # fmt: skip
    if whole < 0:
        if (step == 0).any():
            raise _no_step(step, int((step == 0).argmax()))
        raise _endless(-1 - whole)
    _check_countable(whole, splits_type)
    return splits


def _check_countable(count: int, splits_type: "np.dtype[Any]") -> None:
    if count > INT32_MAX and splits_type != INT64:
        raise InvalidArgumentError("the ranges have more values than Tsplits can count.", code="too-large")


def _no_step(step: Array, position: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"deltas[{position}] is 0; a range needs steps to go. Pass another one.",
        code="zero-delta",
        argument="deltas",
        position=position,
        value=0,
    )


def _endless(position: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the range from starts[{position}] has no last value, or too many. Pass numbers that are closer.",
        code="too-large",
        argument="limits",
        position=position,
    )


def _range_sizes(begin: Array, end: Array, step: Array) -> Array:
    """How many numbers each range of floats has."""
    with np.errstate(all="ignore"):
        wide = np.float32 if begin.dtype.itemsize == 2 else begin.dtype
        exact = np.ceil(np.abs(((end.astype(wide) - begin.astype(wide)).astype(begin.dtype) / step).astype(wide)))
        empty = ((step > 0) & (begin >= end)) | ((step < 0) & (begin <= end))
        counts = np.where(empty, 0, exact)
    known = counts < INT64_MAX // max(counts.size, 1)
    if not known.all():
        raise _endless(int((~known).argmax()))
    return counts.astype(np.int64, copy=False)


def _range_values(begin: Array, step: Array, counts: Array) -> Array:
    """The same in bfloat16, which kernels do not add up: each value is the one before plus the step, rounded."""
    values: Array = allocate(int(counts.sum()), begin.dtype, argument="limits")
    firsts = np.cumsum(counts) - counts
    now, left = begin.copy(), np.flatnonzero(counts > 0)
    for place in range(int(counts.max(initial=0))):
        left = left[counts[left] > place]
        values[firsts[left] + place] = now[left]
        now[left] += step[left]
    return values
