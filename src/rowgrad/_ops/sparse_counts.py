"""How often each whole number occurs, in all or row by row; the result is dense, or sparse."""

from functools import partial
from math import gcd
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.broadcasting import Known, Result
from rowgrad._ops.catalogue import OPERATORS, REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.ragged_counts import count_short, count_width, one_size
from rowgrad._ops.results import CountedEntries
from rowgrad._ops.sparse_groups import check_entries, group, outside, sizes_of
from rowgrad._runtime.dtypes import IDS, Array
from rowgrad._runtime.memory import LINE, POOLED, allocate, buffers, is_nontemporal, scratch
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfRangeError, RowgradError

INT64 = np.dtype(np.int64)
BUFFERED = 4096  # bytes that are counted in a buffer before they are written


def _check_weights(weights: Array, values: Array) -> None:
    if weights.size and weights.shape != values.shape:
        raise InvalidArgumentError(
            f"weights has shape {list(weights.shape)}, but values has {list(values.shape)}; there must be one for each "
            "value, or none at all.",
            code="length-mismatch",
            argument="weights",
            value=weights.shape,
        )


def _negative(values: Array) -> RowgradError:
    flat = values.reshape(-1)
    position = int((flat < 0).argmax())
    if flat[position] >= 0:
        return checks.changed("values")
    return OutOfRangeError(
        f"values[{position}] is {int(flat[position])}; it must be 0 or more. Drop it.",
        code="negative-size",
        argument="values",
        position=position,
        value=int(flat[position]),
    )


def _check_indices(indices: Array, values: Array, dense_shape: Array) -> tuple[int, ...]:
    check_entries("values", values, indices, dense_shape, "")
    shape = sizes_of("dense_shape", dense_shape)
    if ((indices < 0) | (indices >= np.array(shape, np.int64).reshape(1, -1))).any():
        raise outside("indices", indices, shape, range(len(shape)), "dense_shape")
    return shape


def _sum(weights: Array, values: Array, places: Array, count: int, dtype: Any, is_binary: bool) -> Array:
    """The sums of weights, or of ones, of each place, in their order; with `is_binary`, 1 for each that occurs."""
    if is_binary or not weights.size:
        weights = np.ones(values.size, dtype)
    sums: Array = OPERATORS["UnsortedSegmentSum"].compute(weights.reshape(-1), places, count)
    return (sums != 0).astype(dtype) if is_binary else sums


def _bincount(indices: Array, values: Array, dense_shape: Array, size: Any, weights: Array, *,
              binary_output: bool = False) -> Array:  # fmt: skip
    bins = checks.count("size", size)
    check_entries("values", values, indices, dense_shape, "")
    limits = dense_shape.copy()  # the caller's may change
    shape = sizes_of("dense_shape", limits)
    _check_weights(weights, values)
    if not shape:
        raise InvalidArgumentError("dense_shape is []; it must have one dimension or more. Reshape the tensor.",
                                   code="wrong-rank", argument="dense_shape", value=())  # fmt: skip
    after = (bins,) if len(shape) == 1 else (shape[0], bins)
    if values.size == 0:
        return allocate(after, weights.dtype, argument="size", zero=True)
    new: Any = np.empty if bins * after[0] * 8 < POOLED else partial(allocate, argument="size")
    output: Array = new(after, weights.dtype)
    workers = Workers(indices.nbytes + values.nbytes + output.nbytes)
    flat, block, room = output.ravel(), 1, 0
    if is_nontemporal(output, LINE) and LINE // gcd(LINE, bins * output.itemsize) * bins * output.itemsize <= BUFFERED:
        block = LINE // gcd(LINE, bins * output.itemsize)  # as many rows as make whole cache lines
        room = workers.chunks * block * bins
    found = workers.run(
        kernels.sparse_counts.count_bins, indices.ravel(), None if len(shape) == 2 else len(shape),
        limits, values, bins, weights.ravel(), binary_output, scratch(values.size, INT64),
        shape[0], block, buffers(room, output) if room else flat[:0], flat, np.empty(workers.chunks, INT64),
        key=(values.dtype, weights.dtype, len(shape) == 2),
    )  # fmt: skip
    if found & kernels.sparse_counts.OUTSIDE:
        raise outside("indices", indices, shape, range(len(shape)), "dense_shape")
    if len(shape) == 1 and found & kernels.sparse_counts.NEGATIVE:
        raise _negative(values)
    return output


def _check_lengths(minlength: int, maxlength: int) -> None:
    for name, length in (("minlength", minlength), ("maxlength", maxlength)):
        if length < -1:
            raise InvalidArgumentError(f"{name} is {length}; it must be 0 or more, or -1 for none.",
                                       code="negative-size", argument=name, value=length)  # fmt: skip


def _count(values: Array, rows: Array, shape: tuple[int, ...], weights: Array, minlength: int, maxlength: int,
           binary_output: bool) -> CountedEntries:  # fmt: skip
    """Count by row; `shape` is that of the rows, of one dimension or none."""
    _check_lengths(minlength, maxlength)
    flat = values.reshape(-1).astype(np.int64, copy=False)
    if (flat < 0).any():
        raise _negative(values)
    bins = count_width(flat, minlength, maxlength)
    kept = np.flatnonzero(flat < maxlength) if maxlength >= 0 else np.arange(flat.size)
    columns = [rows[kept], flat[kept]] if shape else [flat[kept]]
    groups = group(np.stack(columns, axis=1), ())
    given = weights.reshape(-1)[kept] if weights.size else weights
    sums = _sum(given, flat[kept], groups.number(), len(groups.indices), weights.dtype, binary_output)
    return CountedEntries(groups.indices, sums, np.array([*shape, bins], np.int64))


def _count_rows(values: Array, weights: Array, minlength: int, maxlength: int, binary_output: bool) -> CountedEntries:
    """The same for short rows of a matrix, each of which is sorted by itself."""
    rows, columns = values.shape
    _check_lengths(minlength, maxlength)
    flat = values.reshape(-1)
    if int(flat.min()) < 0:
        raise _negative(values)
    bins, limit = count_width(flat, minlength, maxlength), maxlength if maxlength >= 0 else INT64_MAX
    splits = np.arange(rows + 1, dtype=np.int64) * columns
    found = count_short(splits, flat, weights.reshape(-1), limit, binary=binary_output)
    return CountedEntries(*found, np.array([rows, bins], np.int64))


def _dense_count(values: Array, weights: Array, *, minlength: int = -1, maxlength: int = -1,
                 binary_output: bool) -> CountedEntries:  # fmt: skip
    if values.ndim not in (1, 2):
        raise InvalidArgumentError(
            f"values has shape {list(values.shape)}; it must be a vector or a matrix. Reshape it.",
            code="wrong-rank",
            argument="values",
            value=values.shape,
        )
    _check_weights(weights, values)
    if values.ndim == 2 and values.size and values.shape[1] <= kernels.ragged_rows.SHORT:
        return _count_rows(values, weights, minlength, maxlength, binary_output)
    rows = np.repeat(np.arange(len(values)), values.shape[1]) if values.ndim == 2 else np.zeros(values.size, np.int64)
    return _count(values, rows, values.shape[:-1], weights, minlength, maxlength, binary_output)


def _sparse_count(indices: Array, values: Array, dense_shape: Array, weights: Array, *, minlength: int = -1,
                  maxlength: int = -1, binary_output: bool) -> CountedEntries:  # fmt: skip
    shape = _check_indices(indices, values, dense_shape)
    _check_weights(weights, values)
    rows = indices[:, 0] if len(shape) > 1 else np.zeros(values.size, np.int64)
    return _count(values, rows, shape[:1] if len(shape) > 1 else (), weights, minlength, maxlength, binary_output)


def _bincount_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    rank = shapes.get("dense_shape")
    size = one_size(values["size"]) if "size" in values else None
    if rank is None or not isinstance(rank[0], int):
        return {"output": None}
    if rank[0] == 1:
        return {"output": (size,)}
    return {"output": (one_size(values["dense_shape"][0]) if "dense_shape" in values else None, size)}


def _count_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    rank = _rank_counted(shapes)
    return {"output_indices": (None, rank), "output_values": (None,), "output_dense_shape": (rank,)}


def _rank_counted(shapes: Known) -> int | None:
    """Of the result: rows, if there are rows, and columns."""
    if "dense_shape" not in shapes:
        return None if shapes.get("values") is None else min(len(shapes["values"]), 2)
    sizes = shapes["dense_shape"]
    return min(sizes[0], 2) if sizes is not None and isinstance(sizes[0], int) else None


# Declarations

NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
WRONG_TYPE = "DTypeError: a type that is not listed"
COUNTS = ("int32", "int64", "float32", "float64")
ENTRIES = (
    Pin("indices", "int64", "[N, rank]", "The index of each entry, in any order."),
    Pin("values", "{}", "[N]", "The whole number of each entry."),
    Pin("dense_shape", "int64", "[rank]", "The shape of the sparse tensor."),
)
BINARY = "Whether to count each number that occurs as 1, however often."
LENGTHS = (
    Attribute("binary_output", REQUIRED, BINARY),
    Attribute("minlength", -1, "The least number of columns of the result; -1 for as many as are needed.", kind="int"),
    Attribute("maxlength", -1, "The number of columns; numbers that are not below it are left out. -1 for none.",
              kind="int"),
)  # fmt: skip
OUTPUTS = (
    Pin("output_indices", "int64", "[M, r]", "The row, if there are rows, and the number that is counted, ascending."),
    Pin("output_values", "output_type", "[M]", "How often it occurs, or the sum of its weights."),
    Pin("output_dense_shape", "int64", "[r]", "The number of rows, if there are rows, and of columns."),
)
ERRORS = (
    "InvalidArgumentError: shapes and lengths do not match, or there is not one weight for each value",
    "OutOfRangeError: a value is negative",
)
COUNTED = "Row by row, if there are rows: output[row, v] = how often v occurs in the row, or the sum of its weights"


def _typed(pin: Pin, variable: str) -> Pin:
    return Pin(pin.name, pin.dtype.format(variable), pin.shape, pin.doc)


declare(Operator(
    name="SparseBincount",
    function="sparse_bincount",
    family="sparse_counts",
    summary="How often each whole number below a size occurs in a sparse tensor, row by row if it has rows.",
    inputs=(
        *(_typed(pin, "Tidx") for pin in ENTRIES),
        Pin("size", "Tidx", "[]", "How many numbers are counted; others are left out."),
        Pin("weights", "T", "[W]", "The weight of each entry; empty for 1 each."),
    ),
    outputs=(Pin("output", "T", "[...]", "The counts, [size] or [rows, size]."),),
    types={"Tidx": IDS, "T": COUNTS},
    attributes=(Attribute("binary_output", False, BINARY),),
    formula=COUNTED,
    errors=(*ERRORS, "InvalidArgumentError: size is negative", "OutOfRangeError: an index is not within dense_shape",
            NO_ROOM, WRONG_TYPE),
    cost="O(N · rank + size of the result).",
    example=Example(
        {"indices": [[0, 0], [0, 1], [1, 0]], "values": [1, 1, 2], "dense_shape": [2, 2], "size": 3, "weights": []},
        {"output": [[0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]},
    ),
    compute=_bincount,
    shape_rule=_bincount_shape,
    notes="Of tensors of two dimensions and more, negative values are left out, as in TensorFlow.",
))  # fmt: skip

declare(Operator(
    name="DenseCountSparseOutput",
    function="dense_count_sparse_output",
    family="sparse_counts",
    summary="How often each whole number occurs in a dense tensor, row by row if it has rows; the result is sparse.",
    inputs=(
        Pin("values", "T", "[...]", "The whole numbers, [N] or [rows, columns]."),
        Pin("weights", "output_type", "[...]", "The weight of each value, in the shape of values; empty for 1 each."),
    ),
    outputs=OUTPUTS,
    types={"T": IDS, "output_type": COUNTS},
    attributes=LENGTHS,
    formula=COUNTED,
    errors=(*ERRORS, "InvalidArgumentError: values is not a vector or a matrix", NO_ROOM, WRONG_TYPE),
    cost="O(N · log(numbers)).",
    example=Example(
        {"values": [[1, 2, 1], [0, 5, 5]], "weights": []},
        {"output_indices": [[0, 1], [0, 2], [1, 0], [1, 5]], "output_values": [2.0, 1.0, 1.0, 2.0],
         "output_dense_shape": [2, 6]},
        attributes={"binary_output": False},
    ),
    compute=_dense_count,
    bounds_ids=False,
    shape_rule=_count_shape,
    result=CountedEntries,
))  # fmt: skip

declare(Operator(
    name="SparseCountSparseOutput",
    function="sparse_count_sparse_output",
    family="sparse_counts",
    summary="How often each whole number occurs in a sparse tensor, row by row if it has rows; the result is sparse.",
    inputs=(
        *(_typed(pin, "T") for pin in ENTRIES),
        Pin("weights", "output_type", "[W]", "The weight of each entry; empty for 1 each."),
    ),
    outputs=OUTPUTS,
    types={"T": IDS, "output_type": COUNTS},
    attributes=LENGTHS,
    formula=COUNTED,
    errors=(*ERRORS, "OutOfRangeError: an index is not within dense_shape", NO_ROOM, WRONG_TYPE),
    cost="O(N · log(numbers)).",
    example=Example(
        {"indices": [[0, 0], [0, 1], [1, 0]], "values": [1, 1, 2], "dense_shape": [2, 2], "weights": []},
        {"output_indices": [[0, 1], [1, 2]], "output_values": [2.0, 1.0], "output_dense_shape": [2, 3]},
        attributes={"binary_output": False},
    ),
    compute=_sparse_count,
    bounds_ids=False,
    shape_rule=_count_shape,
    result=CountedEntries,
))  # fmt: skip
