"""Pooled look-ups in which each entry has a weight, their gradients, and the dot products of rows these need.

A weighted sum and its gradient to the table are the same operator, seen from two sides: rows and segments change
places. The gradient to the weights multiplies the two rows that a weight connects.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import SMALL
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Attribute, Example, Operator, declare
from rowgrad._ops.order import one_id_type, order_ids
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import RowGradient
from rowgrad._ops.row_sums import SMALL_ROW, Factors, diagnose, sum_rows
from rowgrad._ops.sparse_segment_grad import G
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import FLOATS, IDS, Array
from rowgrad._runtime.memory import allocate, borrow_work, place, return_work
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, RowgradError


class Entries(NamedTuple):
    """Each entry adds its source row, times its weight, to its target row; `bad` makes the error for one out of range.

    `limit` is the number of target rows, `argument` what it is called.
    """

    targets: Array
    sources: Array
    weights: Array
    limit: int
    argument: str
    bad: Callable[[int], RowgradError]


def _check(values_name: str, values: Array, weights: Array, indices: Array, segment_ids: Array, count_name: str,
           count: Any) -> int:  # fmt: skip
    checks.rank("weights", weights, 1)
    checks.rank("indices", indices, 1)
    checks.rank("segment_ids", segment_ids, 1)
    checks.same_length("weights", weights.size, "indices", indices.size)
    checks.same_length("segment_ids", segment_ids.size, "indices", indices.size)
    checks.at_least_vector(values_name, values)
    return checks.count(count_name, count)


def _pool(data: Array, weights: Array, indices: Array, segment_ids: Array, num_segments: Any, *,
          out: Array | None = None) -> Array:  # fmt: skip
    segments = _check("data", data, weights, indices, segment_ids, "num_segments", num_segments)

    def bad(position: int) -> RowgradError:
        rows_name = "the number of rows of data"
        return diagnose(position, indices, segment_ids, data.shape[0], rows_name, segments, "num_segments")

    entries = Entries(segment_ids, indices, weights, segments, "num_segments", bad)
    return _sum(data, entries, compact=False, out=out)  # type: ignore[no-any-return]


def _compact_gradient(grad: Array, weights: Array, indices: Array, segment_ids: Array, count: Any) -> RowGradient:
    rows = _check("grad", grad, weights, indices, segment_ids, "dense_output_dim0", count)

    def bad(position: int) -> RowgradError:
        segments_name = "the number of rows of grad"
        return diagnose(position, indices, segment_ids, rows, "dense_output_dim0", grad.shape[0], segments_name)

    entries = Entries(indices, segment_ids, weights, rows, "dense_output_dim0", bad)
    return _sum(grad, entries, compact=True)  # type: ignore[no-any-return]


def _sum(values: Array, entries: Entries, *, compact: bool, out: Array | None = None) -> Any:
    size, tail = entries.targets.size, values.shape[1:]
    if size == 0:
        shape = (0 if compact else entries.limit, *tail)
        output = place(out, shape, values.dtype, argument=entries.argument, zero=True)
        return RowGradient(output, np.empty(0, entries.targets.dtype)) if compact else output
    # One kernel for all types of weights: each is rounded to the type that the sums are made in.
    with np.errstate(over="ignore"):
        weights = entries.weights.astype(dtypes.summing(values.dtype).sums, copy=False)
    entries = entries._replace(weights=weights)
    row_bytes = values.itemsize * prod(tail)
    if size <= SMALL and row_bytes <= SMALL_ROW and out is None and entries.limit < 2**31 > values.shape[0]:
        return _sum_small(values, entries, compact)

    workers = Workers(size * (16 + row_bytes))
    (sources,) = one_id_type(entries.sources)
    outside = workers.run(
        kernels.weighted_sum.first_outside, sources, values.shape[0], np.empty(workers.chunks, np.int64)
    )
    order = order_ids(workers, entries.targets, None, entries.limit, size)
    wrong = [position for position in (outside, order.bad) if position >= 0]
    if wrong:
        raise entries.bad(int(min(wrong)))
    factors = Factors(weights, 0, (1 << order.shift) - 1)
    unique = np.empty(order.distinct if compact else 0, np.int64)
    output = sum_rows(
        workers, order, values, factors, rows=None if compact else entries.limit, unique=unique,
        argument=entries.argument, out=out, sources=sources,
    )  # fmt: skip
    return RowGradient(output, unique.astype(entries.targets.dtype, copy=False)) if compact else output


def _sum_small(values: Array, entries: Entries, compact: bool) -> Any:
    """The same by one kernel: for a handful of entries, calling several takes longer than the work."""
    stored, sums, _ = dtypes.summing(values.dtype)
    targets, sources, weights, limit, argument, bad = entries
    size, tail = targets.size, values.shape[1:]
    if compact:
        output, unique = np.empty((size, *tail), values.dtype), np.empty(size, np.int64)
    else:
        output, unique = allocate((limit, *tail), values.dtype, argument=argument, zero=True), np.empty(0, np.int64)
    work = borrow_work(sums)
    distinct = kernels.weighted_sum.sum_small(
        *one_id_type(targets, sources), limit, values.shape[0], weights, values.reshape(-1).view(stored), prod(tail),
        compact,
        kernels.lanes.lanes_for(sums, prod(tail)), output.reshape(-1).view(stored), unique, work[0],
    )  # fmt: skip
    return_work(work)
    if distinct < 0:
        raise bad(-1 - distinct)
    return RowGradient(output[:distinct], unique[:distinct].astype(targets.dtype, copy=False)) if compact else output


def _row_dot(a: Array, b: Array, a_rows: Array, b_rows: Array, *, out_type: str | None = None,
             out: Array | None = None) -> Array:  # fmt: skip
    checks.rank("a_rows", a_rows, 1)
    checks.rank("b_rows", b_rows, 1)
    checks.same_length("b_rows", b_rows.size, "a_rows", a_rows.size)
    checks.at_least_vector("a", a)
    checks.at_least_vector("b", b)
    if a.shape[1:] != b.shape[1:]:
        raise InvalidArgumentError(
            f"the rows of b have shape {list(b.shape[1:])}, but those of a have {list(a.shape[1:])}; they must be "
            "the same. Reshape one of them.",
            code="length-mismatch",
            argument="b",
            value=b.shape,
        )
    size, width = a_rows.size, prod(a.shape[1:])
    stored, sums, _ = dtypes.summing(a.dtype)
    wanted = a.dtype if out_type is None else dtypes.NUMPY[out_type]
    found = place(out, (size,), wanted, argument="a_rows", zero=False)
    dots = found if wanted == sums else allocate((size,), sums, argument="a_rows")
    workers = Workers(size * (16 + 2 * width * a.itemsize))
    left, right = one_id_type(a_rows, b_rows)
    bad = workers.run(
        kernels.weighted_sum.dot_rows, a.reshape(-1).view(stored), left, a.shape[0], b.reshape(-1).view(stored),
        right, b.shape[0], width, np.empty(0, sums), dots, np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if bad >= 0:
        raise _bad_row(int(bad), a, b, a_rows, b_rows)
    if dots is not found:
        with np.errstate(over="ignore"):
            found[...] = dots
    return found


def _bad_row(position: int, a: Array, b: Array, a_rows: Array, b_rows: Array) -> RowgradError:
    name, rows, table = ("a", a_rows, a) if not 0 <= a_rows[position] < a.shape[0] else ("b", b_rows, b)
    remedy = "Drop the entry, or look up in a larger table."
    return checks.out_of_range(f"{name}_rows", position, int(rows[position]), table.shape[0],
                               f"the number of rows of {name}", "index-out-of-range", remedy)  # fmt: skip


# Declarations

TYPES = {"T": FLOATS, "Tw": FLOATS, "Tidx": IDS, "Tseg": IDS}
WEIGHTS = Pin("weights", "Tw", "[N]", "The factor of each entry.")
INDICES = Pin("indices", "Tidx", "[N]", "The table row of each entry; rows may repeat.")
SEGMENT_IDS = Pin("segment_ids", "Tseg", "[N]", "The segment of each entry, in any order; gaps are fine.")
ERRORS = (
    "InvalidArgumentError: weights, indices or segment_ids is not a vector, or they differ in length",
    "InvalidArgumentError: {count} is not a scalar, or negative",
    "InvalidArgumentError: {values} is a scalar",
    "OutOfMemoryError: the result does not fit into memory",
    "OutOfRangeError: an index is not in [0, {rows}), or a segment id not in [0, {segments})",
    "DTypeError: a type that is not listed",
)
ROUNDING = (
    "Weights are rounded to the type that sums are made in, which is float32 for half and bfloat16 and else that of "
    "the {values}; each product and each sum is rounded there, and the result once more."
)


declare(Operator(
    name="SparseSegmentWeightedSum",
    function="sparse_segment_weighted_sum",
    family="weighted_sum",
    summary="Look up rows of a table, multiply each by a weight, and sum them by segment.",
    inputs=(
        Pin("data", "T", "[V, ...]", "The table."),
        WEIGHTS,
        INDICES,
        SEGMENT_IDS,
        Pin("num_segments", "int64", "[]", "The number of rows of the output."),
    ),
    outputs=(Pin("output", "T", "[num_segments, ...]", "The weighted sums; segments without entries are 0."),),
    types=TYPES,
    formula="output[s] = Σ over i with segment_ids[i] = s of weights[i] · data[indices[i]], in the order of i",
    errors=tuple(text.format(values="data", count="num_segments", rows="rows of data", segments="num_segments")
                 for text in ERRORS),
    cost="O(N · (width + log segments)); sorted segment ids are detected and not sorted again.",
    example=Example(
        {"data": G, "weights": [2.0, 0.5, 1.0], "indices": [0, 1, 2], "segment_ids": [2, 2, 0], "num_segments": 3},
        {"output": [[3.0, 1.0, 5.0], [0.0, 0.0, 0.0], [4.0, 6.0, 7.0]]},
    ),
    compute=_pool,
    options=("out",),
    gradient={
        "data": lambda op, d_output, weights, indices, segment_ids, data: op.SparseSegmentWeightedSum(
            d_output, weights, segment_ids, indices, op.rows(data)
        ),
        "weights": lambda op, d_output, data, indices, segment_ids, Tw: op.RowDot(
            d_output, data, segment_ids, indices, out_type=Tw
        ),
    },
    compact_gradient={
        "data": lambda op, d_output, weights, indices, segment_ids, data: op.SparseSegmentWeightedSumGradV2(
            d_output, weights, indices, segment_ids, op.rows(data)
        )
    },
    notes=ROUNDING.format(values="data"),
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseSegmentWeightedSumGradV2",
    function="sparse_segment_weighted_sum_grad_v2",
    family="weighted_sum",
    summary="The compact gradient of a weighted sum with respect to its table: only the rows that were looked up.",
    inputs=(
        Pin("grad", "T", "[S, ...]", "The gradient of each segment's sum."),
        WEIGHTS,
        INDICES,
        SEGMENT_IDS,
        Pin("dense_output_dim0", "int64", "[]", "The number of rows of the table, which does not affect the cost."),
    ),
    outputs=(
        Pin("output", "T", "[U, ...]", "The gradient of each row that was looked up, in ascending order of rows."),
        Pin("sorted_unique_indices", "Tidx", "[U]", "Which rows these are, ascending."),
    ),
    types=TYPES,
    formula="row r of the table = Σ over i with indices[i] = r of weights[i] · grad[segment_ids[i]], in the order of i"
    "\n"
    "sorted_unique_indices = the distinct indices, ascending; output = their rows",
    errors=tuple(text.format(values="grad", count="dense_output_dim0", rows="dense_output_dim0",
                             segments="rows of grad") for text in ERRORS),
    cost="O(N · (width + log rows)), for any size of the table.",
    example=Example(
        {"grad": G, "weights": [2.0, 0.5, 1.0], "indices": [7, 1, 7], "segment_ids": [0, 0, 2],
         "dense_output_dim0": 1000},
        {"output": [[0.5, 1.0, 1.5], [5.0, 5.0, 11.0]], "sorted_unique_indices": [1, 7]},
    ),
    compute=_compact_gradient,
    gradient={
        "grad": lambda op, d_output, weights, sorted_unique_indices, indices, segment_ids, grad: (
            op.SparseSegmentWeightedSum(
                d_output, weights, op.IndexRank(sorted_unique_indices, indices), segment_ids, op.rows(grad)
            )
        ),
        "weights": lambda op, d_output, grad, sorted_unique_indices, indices, segment_ids, Tw: op.RowDot(
            d_output, grad, op.IndexRank(sorted_unique_indices, indices), segment_ids, out_type=Tw
        ),
    },
    result=RowGradient,
    notes=ROUNDING.format(values="gradient"),
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="RowDot",
    function="row_dot",
    family="weighted_sum",
    summary="The dot product of a row of one table and a row of another, for each entry.",
    inputs=(
        Pin("a", "T", "[A, ...]", "A table."),
        Pin("b", "T", "[B, ...]", "Another one, with rows of the same shape."),
        Pin("a_rows", "Ta", "[N]", "The row of a of each entry; rows may repeat."),
        Pin("b_rows", "Tb", "[N]", "The row of b of each entry; rows may repeat."),
    ),
    outputs=(Pin("dots", "out_type", "[N]", "The dot products."),),
    types={"T": FLOATS, "Ta": IDS, "Tb": IDS, "out_type": FLOATS},
    attributes=(Attribute("out_type", None, "The type of the result; by default that of a and b.", kind="dtype"),),
    formula="dots[i] = Σ over all columns of a[a_rows[i]] · b[b_rows[i]]",
    errors=(
        "InvalidArgumentError: a_rows or b_rows is not a vector, or they differ in length",
        "InvalidArgumentError: a or b is a scalar, or their rows differ in shape",
        "OutOfMemoryError: the result does not fit into memory",
        "OutOfRangeError: a row is not in [0, rows of a), or not in [0, rows of b)",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · width).",
    example=Example(
        {"a": G, "b": [[1.0, 0.0, 2.0], [0.5, 1.0, 0.0]], "a_rows": [0, 2, 0], "b_rows": [0, 0, 1]},
        {"dots": [7.0, 13.0, 2.5]},
    ),
    compute=_row_dot,
    options=("out",),
    gradient={
        "a": lambda op, d_dots, a, b, a_rows, b_rows: op.SparseSegmentWeightedSum(
            b, d_dots, b_rows, a_rows, op.rows(a)
        ),
        "b": lambda op, d_dots, a, b, a_rows, b_rows: op.SparseSegmentWeightedSum(
            a, d_dots, a_rows, b_rows, op.rows(b)
        ),
    },
    notes="The function returns the type of the tables; `raw_ops.RowDot` and blocks have an attribute for it. "
    "Half and bfloat16 are computed in float32. The order of the sum is fixed: the products of whole blocks of 16 "
    "columns (8 of float64) are added to 16 (8) sums, block by block; these are added in pairs, each of the first half "
    "and its peer in the second, until one is left; the columns left over are summed left to right, and added last.",
    in_tensorflow=False,
))  # fmt: skip
