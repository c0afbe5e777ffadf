"""How often each number occurs in each row of a ragged tensor; the result is dense, or sparse."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import OPERATORS, REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.ragged_splits import BAD_SPLITS, NO_ROOM, TYPES, bad_splits, check_splits, row_ids
from rowgrad._ops.results import CountedEntries
from rowgrad._runtime.dtypes import IDS, Array
from rowgrad._runtime.memory import allocate, scratch
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfRangeError


def _check_counted(splits: Array, values: Array, weights: Array) -> Array:
    found = check_splits("splits", splits, values.size)
    checks.rank("values", values, 1)
    if weights.size:
        checks.rank("weights", weights, 1)
        checks.same_length("weights", weights.size, "values", values.size)
    if values.size and values.min() < 0:
        position = int((values < 0).argmax())
        raise OutOfRangeError(
            f"values[{position}] is {values[position]}; only numbers from 0 on can be counted. Drop it.",
            code="index-out-of-range",
            argument="values",
            position=position,
            value=int(values[position]),
        )
    return found


def _totals(places: Array, count: int, weights: Array, dtype: Any, *, binary: bool) -> Array:
    """How often each place occurs, or the sum of the weights there, in the order of the values."""
    if binary or not weights.size:
        counts = np.bincount(places, minlength=count)
        found: Array = (counts > 0).astype(dtype) if binary else counts.astype(dtype)
        return found
    summed: Array = OPERATORS["UnsortedSegmentSum"].compute(weights, places, count)
    return summed


def _bincount(splits: Array, values: Array, size: Any, weights: Array, *, binary_output: bool = False) -> Array:
    bins = checks.count("size", int(size) if np.ndim(size) == 0 else size)
    found, weights = _check_counted(splits, values, weights), weights.reshape(-1)
    output = allocate((found.size - 1, bins), weights.dtype, argument="size", zero=True)
    if output.size:
        Workers(output.nbytes + values.nbytes).run(
            kernels.ragged_rows.count_bins, found, found.size - 1, values, bins, weights, binary_output,
            output.reshape(-1),
        )  # fmt: skip
    return output


def count_width(values: Array, minlength: int, maxlength: int) -> int:
    """The width of the result of a count of values, which must be one that int64 holds."""
    width = maxlength if maxlength >= 0 else max(int(values.max(initial=0)) + 1, minlength)
    if width > INT64_MAX:
        raise OutOfRangeError(
            f"the result has {width} columns, more than int64 can count. Pass smaller values, or maxlength.",
            code="too-large", argument="values", value=width,
        )  # fmt: skip
    return width


def _count_sparse(splits: Array, values: Array, weights: Array, *, minlength: int = -1, maxlength: int = -1,
                  binary_output: bool = False) -> CountedEntries:  # fmt: skip
    for name, length in (("minlength", minlength), ("maxlength", maxlength)):
        if length < -1:
            raise InvalidArgumentError(
                f"{name} is {length}; it must be -1 or more.", code="wrong-attribute", argument=name, value=length
            )
    found, weights = _check_counted(splits, values, weights), weights.reshape(-1)
    if found.size < 2:
        raise bad_splits("splits", "has no rows; there must be one or more", None, None)
    width = count_width(values, minlength, maxlength)
    limit = maxlength if maxlength >= 0 else INT64_MAX
    shape = np.array([found.size - 1, width], np.int64)
    if int(np.diff(found).max()) > kernels.ragged_rows.SHORT:
        return CountedEntries(*_count_long(found, values, weights, limit, binary=binary_output), shape)
    return CountedEntries(*count_short(found, values, weights, limit, binary=binary_output), shape)


def count_short(splits: Array, values: Array, weights: Array, limit: int, *, binary: bool) -> tuple[Array, Array]:
    """The indices and counts of short rows, which are sorted one by one; splits and values belong to the call."""
    workers, rows = Workers(16 * values.size), splits.size - 1
    order, offsets = scratch(values.size, np.int64), np.zeros(rows + 1, np.int64)
    workers.run(kernels.ragged_rows.count_distinct, splits, rows, values, limit, order, offsets[1:])
    np.cumsum(offsets, out=offsets)
    indices = allocate((int(offsets[-1]), 2), np.int64)
    output = allocate(int(offsets[-1]), weights.dtype)
    workers.run(kernels.ragged_rows.write_counts, splits, rows, values, limit, order, offsets, weights, binary,
                indices.reshape(-1), output)  # fmt: skip
    return indices, output


def _count_long(splits: Array, values: Array, weights: Array, limit: int, *, binary: bool) -> tuple[Array, Array]:
    """The same for long rows, by sorting all values at once."""
    rows, numbers = row_ids(splits), values.astype(np.int64)
    keep = numbers < limit
    rows, numbers = rows[keep], numbers[keep]
    order = np.lexsort([numbers, rows])
    pairs = np.stack([rows, numbers], axis=1)
    is_first = np.ones(order.size, bool)
    is_first[1:] = (pairs[order[1:]] != pairs[order[:-1]]).any(axis=1)
    places = np.empty(order.size, np.int64)
    places[order] = np.cumsum(is_first) - 1
    chosen = weights[keep] if weights.size else weights
    counted = _totals(places, int(is_first.sum()), chosen, weights.dtype, binary=binary)
    return np.ascontiguousarray(pairs[order[is_first]], np.int64).reshape(-1, 2), counted


# Declarations

COUNTED = ("int32", "int64", "float32", "float64")
SPLIT_PIN = Pin("splits", "int64", "[row_count]", "Where each row begins and ends.")
WEIGHTS = "The weight of each value; empty for 1 each."


def _count_shapes(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    return {"output_indices": (None, 2), "output_values": (None,), "output_dense_shape": (2,)}


def one_size(value: Any) -> Any:
    """A size as a number; one that PyTorch has not settled yet stays a symbol."""
    return int(value) if isinstance(value, np.ndarray | np.generic) else value


def _bin_shapes(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    size, splits = values.get("size"), shapes.get("splits")
    rows = splits[0] - 1 if splits and isinstance(splits[0], int) and splits[0] > 0 else None
    return {"output": (rows, None if size is None else one_size(size))}


declare(Operator(
    name="RaggedBincount",
    function="ragged_bincount",
    family="ragged_counts",
    summary="How often each number occurs in each row, as a matrix.",
    inputs=(
        SPLIT_PIN,
        Pin("values", "Tidx", "[value_count]", "The numbers, row after row; those of size and more are not counted."),
        Pin("size", "Tidx", "[]", "The number of columns."),
        Pin("weights", "T", "[weight_count]", WEIGHTS),
    ),
    outputs=(Pin("output", "T", "[rows, size]", "How often, or the sum of the weights."),),
    types={"Tidx": IDS, "T": COUNTED},
    attributes=(Attribute("binary_output", False, "Whether to count each number that occurs as 1, however often."),),
    formula="output[i, v] = Σ weights[j] over the j of row i with values[j] = v, in their order",
    errors=(BAD_SPLITS, "InvalidArgumentError: size is negative, or there is not one weight for each value",
            "OutOfRangeError: a value is negative", NO_ROOM, TYPES),
    cost="O(N + rows · size).",
    example=Example({"splits": [0, 2, 2, 4], "values": [1, 1, 0, 2], "size": 3, "weights": [0.5, 1.0, 2.0, 3.0]},
                    {"output": [[0.0, 1.5, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 3.0]]}),
    compute=_bincount,
    shape_rule=_bin_shapes,
))  # fmt: skip
declare(Operator(
    name="RaggedCountSparseOutput",
    function="ragged_count_sparse_output",
    family="ragged_counts",
    summary="How often each number occurs in each row, as a sparse matrix.",
    inputs=(
        SPLIT_PIN,
        Pin("values", "T", "[value_count]", "The numbers, row after row."),
        Pin("weights", "output_type", "[weight_count]", WEIGHTS),
    ),
    outputs=(
        Pin("output_indices", "int64", "[M, 2]", "The row and the number, in order."),
        Pin("output_values", "output_type", "[M]", "How often, or the sum of the weights."),
        Pin("output_dense_shape", "int64", "[2]", "The number of rows and of columns."),
    ),
    types={"T": IDS, "output_type": COUNTED},
    attributes=(
        Attribute("binary_output", REQUIRED, "Whether to count each number that occurs as 1, however often."),
        Attribute("minlength", -1, "The number of columns that there are at least.", "int"),
        Attribute("maxlength", -1, "The number of columns; larger numbers are not counted. -1 for as many as needed.",
                  "int"),
    ),
    formula="as RaggedBincount, without what does not occur",
    errors=(BAD_SPLITS, "InvalidArgumentError: there is not one weight for each value, or a length is below -1",
            "OutOfRangeError: a value is negative", NO_ROOM, TYPES),
    cost="O(N · log N).",
    example=Example({"splits": [0, 2, 2, 4], "values": [1, 1, 0, 2], "weights": [0.5, 1.0, 2.0, 3.0]},
                    {"output_indices": [[0, 1], [2, 0], [2, 2]], "output_values": [1.5, 2.0, 3.0],
                     "output_dense_shape": [3, 3]}, attributes={"binary_output": False}),
    compute=_count_sparse,
    result=CountedEntries,
    shape_rule=_count_shapes,
))  # fmt: skip
