"""The segment gradients, dense (Grad) and compact (GradV2), and the gradients of both.

A gradient sends the gradient row of each segment back to the table rows that were pooled into it: sort the
entries by table row, then sum each row. The gradient of a gradient pools again, with the same factors.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import CACHED_GRAINS, MEAN, SMALL, SQRT_N, SUM
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.order import COUNT_PARTNERS, COUNT_ROWS, Order, one_id_type, order_ids
from rowgrad._ops.pins import Pin
from rowgrad._ops.quick import ID_TYPES, MOST_WAYS, NDARRAY, first_call, is_plain
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import dtypes, threads
from rowgrad._runtime.dtypes import FLOATS, IDS, Array
from rowgrad._runtime.memory import POOLED, allocate, borrow_work, is_nontemporal, place, place_uncleared, return_work
from rowgrad._runtime.threads import Workers
from rowgrad.errors import OutOfRangeError, RowgradError

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan

# What `diagnose` takes behind the position: indices, segment ids, and their limits with the names of these.
Blamed = tuple[Array, Array, int, str, int, str]
GRAD_ROWS = "the number of rows of grad"
KINDS = {"Sum": SUM, "Mean": MEAN, "SqrtN": SQRT_N}
NOTHING = np.empty(0, np.int64)
INT64 = np.dtype(np.int64)
GRAD_TYPES = frozenset(dtypes.NUMPY[name] for name in FLOATS)
FEW_SEGMENTS = 1 << 18  # whose factors NumPy makes as fast as a kernel that would have to be compiled first
SMALL_ROW = 4096  # bytes in a row up to which a call of few entries counts as small
_adding: dict[tuple[Any, ...], Callable[..., int]] = {}  # compiled code by the types of values, vectors and ids
SNAKE = {"Sum": "sum", "Mean": "mean", "SqrtN": "sqrt_n"}


def check_pairs(grad: Array, indices: Array, segment_ids: Array, count_name: str, count: Any) -> int:
    if (
        indices.ndim == segment_ids.ndim == 1
        and indices.size == segment_ids.size
        and grad.ndim
        and type(count) is int
        and count >= 0
    ):
        return count
    checks.rank("indices", indices, 1)
    checks.rank("segment_ids", segment_ids, 1)
    number = checks.count(count_name, count, least=None)
    checks.same_length("segment_ids", segment_ids.size, "indices", indices.size)
    checks.at_least_vector("grad", grad)
    return checks.count(count_name, number)


def diagnose(position: int, indices: Array, segment_ids: Array, rows: int, rows_name: str, segments: int,
             segments_name: str) -> RowgradError:  # fmt: skip
    """The error for the entry at `position`: its index first, then its segment id."""
    index = int(indices[position])
    if not 0 <= index < rows:
        remedy = f"Drop the entry, or raise {rows_name}."
        return checks.out_of_range("indices", position, index, rows, rows_name, "index-out-of-range", remedy)
    return _bad_segment(segment_ids, position, segments, segments_name)


def _bad_segment(segment_ids: Array, position: int, segments: int, segments_name: str) -> RowgradError:
    remedy = f"Each id names a row; fix the id, or raise {segments_name}."
    value = int(segment_ids[position])
    return checks.out_of_range(
        "segment_ids", position, value, segments, segments_name, "segment-id-out-of-range", remedy
    )


class Factors(NamedTuple):
    """What entries are scaled by: `values`, found by the part of an entry's word that shift and mask cut out."""

    values: Array
    shift: int
    mask: int


def factors_of(workers: Workers, kind: int, order: Order, dtype: "np.dtype[Any]", *, by_row: bool = False) -> Factors:
    """The factor of each segment; where nothing is scaled, a single 1."""
    sums = dtypes.summing(dtype).sums
    if kind == SUM:
        return Factors(np.ones(1, sums), 0, 0)
    if order.counts.size <= FEW_SEGMENTS:
        sizes = np.maximum(order.counts, 1).astype(np.float64)
        values = (1.0 / (sizes if kind == MEAN else np.sqrt(sizes))).astype(sums)
    else:
        values = allocate(order.counts.shape, sums)
        workers.run(kernels.sparse_segment_grad.scales, kind, order.counts, values)
    return Factors(values, order.shift, -1) if by_row else Factors(values, 0, (1 << order.shift) - 1)


def sum_rows(workers: Workers, order: Order, values: Array, factors: Factors, *, rows: int | None, argument: str,
             unique: Array = NOTHING, out: Array | None = None, sources: Array | None = None) -> Array:  # fmt: skip
    """Σ of the entries' values, row by row: into `rows` rows, or, for None, into those that occur (`unique`).

    With `sources`, partners are positions of entries, and it tells the row of `values` of each.
    """
    names = order.row_names
    if order.partner_names is not None and sources is None:
        values = values[order.partner_names]
    stored, sums, parts = dtypes.summing(values.dtype)
    compact = rows is None or names is not None
    shape = (order.distinct if compact else rows, *values.shape[1:])
    output, is_zero = place_uncleared(
        out if names is None else None, shape, values.dtype, argument=argument, zero=not compact
    )
    width = parts * (output.size // shape[0] if shape[0] else 0)
    lanes, flat = kernels.lanes.lanes_for(sums, width), output.reshape(-1).view(stored)
    workers.run(
        kernels.sparse_segment_grad.sum_rows, order.words, order.shift, order.row_starts,
        values.reshape(-1).view(stored), width, *factors, compact, lanes, flat,
        unique if rows is None else np.empty(shape[0] if compact else 0, np.int64),
        None if sources is None else (sources, values.shape[0]),
    )  # fmt: skip
    if not compact and not is_zero:
        nontemporal = is_nontemporal(output, output.nbytes // rows if rows else 0)
        workers.run(
            kernels.sparse_segment_grad.clear_gaps, order.words, order.shift, rows, width, lanes, flat, nontemporal
        )
    if names is None:
        return output
    if rows is None:
        unique[:] = names
        return output
    dense = place(out, (rows, *values.shape[1:]), values.dtype, argument=argument, zero=True)
    dense[names] = output
    return dense


def _sum_pairs(kind: int, values: Array, rows: Array, partners: Array, row_limit: int, blamed: Blamed, by_row: bool,
               compact: bool, argument: str, plan: "Plan | None" = None, out: Array | None = None) -> Any:  # fmt: skip
    """Sum values[partner] · factor into its row, for each (row, partner); the factor is the row's or the partner's."""
    if values.size == 0:
        kind = SUM  # rows without columns: nothing to scale, however many segments there are
    if plan is None:
        size, partner_limit = rows.size, values.shape[0]
        row_bytes = values.nbytes // partner_limit if partner_limit else 0
        scaled = 1 if kind == SUM else row_limit if by_row else partner_limit
        if (
            not compact
            and (row_limit + size) * row_bytes <= CACHED_GRAINS * threads.GRAIN
            and scaled <= 4 * size + SMALL
            and dtypes.is_summed_as_stored(values.dtype)
        ):
            return _add_rows(kind, values, rows, partners, row_limit, blamed, by_row, argument, out, scaled)
        if out is None and _is_small(size, scaled, row_bytes, row_limit, partner_limit):
            return _sum_small(kind, values, rows, partners, row_limit, blamed, by_row, compact, argument)
    workers, order = _sort(kind, values, rows, partners, row_limit, blamed, by_row, argument, plan)
    factors = factors_of(workers, kind, order, values.dtype, by_row=by_row)
    if compact:
        unique = np.empty(order.distinct, np.int64)
        output = sum_rows(workers, order, values, factors, rows=None, unique=unique, argument=argument)
        return RowGradient(output, unique.astype(rows.dtype, copy=False))
    return sum_rows(workers, order, values, factors, rows=row_limit, argument=argument, out=out)


def _add_rows(kind: int, values: Array, rows: Array, partners: Array, row_limit: int, blamed: Blamed, by_row: bool,
              argument: str, out: Array | None, scaled: int) -> Array:  # fmt: skip
    """The same into a dense result that the caches hold: without sorting, in the order of input."""
    shape, dtype, width = (row_limit, *values.shape[1:]), values.dtype, prod(values.shape[1:])
    if out is None and row_limit * width * dtype.itemsize < POOLED:
        output = np.empty(shape, dtype)
    else:
        output = place(out, shape, dtype, argument=argument, zero=False)
    ids = (rows, partners) if rows.dtype is partners.dtype is INT64 else one_id_type(rows, partners)
    lanes = kernels.lanes.lanes_for(dtype, width)
    args = (
        *ids, row_limit, values.shape[0], kind, by_row, values.ravel(), width, lanes, output.ravel(),
        np.empty(scaled, INT64), np.empty(scaled, dtype),
    )  # fmt: skip
    key = dtype, lanes.ndim, ids[0].dtype
    code = _adding.get(key)
    if code is None:
        position, _adding[key] = first_call(kernels.sparse_segment_grad.add_rows, args)
    else:
        position = code(*args)
    if position >= 0:
        raise diagnose(position, *blamed)
    return output


def _sort(kind: int, values: Array, rows: Array, partners: Array, row_limit: int, blamed: Blamed, by_row: bool,
          argument: str, plan: "Plan | None") -> tuple[Workers, Order]:  # fmt: skip
    """The order of the pairs, and the workers for what is made of it."""
    partner_limit = values.shape[0]
    workers = Workers(rows.size * (16 + (values.nbytes // partner_limit if partner_limit else 0)))
    if plan is None:
        counted = 0 if kind == SUM else COUNT_ROWS if by_row else COUNT_PARTNERS
        order = order_ids(workers, rows, partners, row_limit, partner_limit, counted=counted)
        if order.bad >= 0:
            raise diagnose(order.bad, *blamed)
    else:
        plan.check(argument, row_limit, "grad", partner_limit)
        order = plan.order
        workers.chunks = order.chunks
    return workers, order


def _is_small(size: int, scaled: int, row_bytes: int, row_limit: int, partner_limit: int) -> bool:
    return size <= SMALL and scaled <= SMALL and row_bytes <= SMALL_ROW and row_limit < 2**31 > partner_limit


def sum_few(kind: int, grad: Array, indices: Array, segment_ids: Array, rows: int,
            rows_name: str) -> RowGradient | None:  # fmt: skip
    """The compact gradient of a small call, to be used at once; None where it is not small."""
    segments = grad.shape[0]
    row_bytes = grad.nbytes // segments if segments else 0
    if not _is_small(indices.size, 1 if kind == SUM else segments, row_bytes, rows, segments):
        return None
    blamed = indices, segment_ids, rows, rows_name, grad.shape[0], GRAD_ROWS
    found: RowGradient = _sum_small(kind, grad, indices, segment_ids, rows, blamed, False, True, rows_name)
    return found


def sort_pairs(kind: int, grad: Array, indices: Array, segment_ids: Array, rows: int, rows_name: str,
               plan: "Plan | None") -> tuple[Workers, Order]:  # fmt: skip
    """The order of (index, segment) pairs, for a gradient that is not made but used at once."""
    blamed = indices, segment_ids, rows, rows_name, grad.shape[0], GRAD_ROWS
    return _sort(kind, grad, indices, segment_ids, rows, blamed, False, rows_name, plan)


def _sum_small(kind: int, values: Array, rows: Array, partners: Array, row_limit: int, blamed: Blamed, by_row: bool,
               compact: bool, argument: str) -> Any:  # fmt: skip
    """The same by one kernel: for a handful of entries, calling several takes longer than the work."""
    stored, sums, parts = dtypes.summing(values.dtype)
    size, tail = rows.size, values.shape[1:]
    if compact:
        output, unique = np.empty((size, *tail), values.dtype), np.empty(size, INT64)
    else:
        output, unique = allocate((row_limit, *tail), values.dtype, argument=argument, zero=True), NOTHING
    flat, width = output.ravel(), parts * prod(tail)
    source = values.ravel()
    if stored is not values.dtype:
        flat, source = flat.view(stored), source.view(stored)
    ids = (rows, partners) if rows.dtype is partners.dtype is INT64 else one_id_type(rows, partners)
    work = borrow_work(sums)
    distinct = kernels.sparse_segment_grad.sum_small(
        *ids, row_limit, values.shape[0], kind, by_row, source, width, compact, kernels.lanes.lanes_for(sums, width),
        flat, unique, *work,
    )  # fmt: skip
    return_work(work)
    if distinct < 0:
        raise diagnose(-1 - distinct, *blamed)
    if not compact:
        return output
    unique = unique[:distinct]
    return RowGradient(output[:distinct], unique if rows.dtype is INT64 else unique.astype(rows.dtype))


class _Way(NamedTuple):
    """What small calls on gradients of one type and row shape have in common, and their compiled code."""

    row_bytes: int
    width: int
    stored: "np.dtype[Any] | None"
    sums: "np.dtype[Any]"
    lanes: Array
    code: list[Callable[..., int] | None]


class _Small:
    """The compact gradient of a small call, by one kernel, where arrays are just as that takes them; None else."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._ways: dict[tuple[Any, ...], _Way] = {}

    def __call__(self, grad: Any, indices: Any, segment_ids: Any, rows: Any) -> RowGradient | None:
        if type(grad) is not NDARRAY or type(indices) is not NDARRAY or type(segment_ids) is not NDARRAY:
            return None
        dtype, shape, named = grad.dtype, grad.shape, indices.dtype
        key = dtype, named, segment_ids.dtype, shape[1:]
        way = self._ways.get(key) or self._make_way(key)
        if way is None or not (is_plain(grad) and is_plain(indices) and is_plain(segment_ids)):
            return None
        row_bytes, width, stored, sums, lanes, code = way
        size = indices.size
        if not shape or indices.ndim != 1 or segment_ids.ndim != 1 or segment_ids.size != size or type(rows) is not int:
            return None
        segments = shape[0]
        if not (0 < size <= SMALL and 0 < segments <= SMALL and 0 < rows < 2**31 and 0 < row_bytes <= SMALL_ROW):
            return None
        if not named is segment_ids.dtype is INT64:
            indices, segment_ids = indices.astype(INT64, copy=False), segment_ids.astype(INT64, copy=False)
        output, unique = np.empty((size, *shape[1:]), dtype), np.empty(size, INT64)
        source, target = grad.ravel(), output.ravel()
        if stored is not None:
            source, target = source.view(stored), target.view(stored)
        work = borrow_work(sums)
        args = (
            indices,
            segment_ids,
            rows,
            segments,
            self._kind,
            False,
            source,
            width,
            True,
            lanes,
            target,
            unique,
            *work,
        )
        if code[0] is None:
            distinct, code[0] = first_call(kernels.sparse_segment_grad.sum_small, args)
        else:
            distinct = code[0](*args)
        return_work(work)
        if distinct < 0:
            return None  # `compute` says what is wrong
        unique = unique[:distinct]
        return RowGradient(output[:distinct], unique if named is INT64 else unique.astype(named))

    def _make_way(self, key: tuple[Any, ...]) -> _Way | None:
        dtype, indices, segment_ids, tail = key
        if dtype not in GRAD_TYPES or indices not in ID_TYPES or segment_ids not in ID_TYPES:
            return None
        if len(self._ways) > MOST_WAYS:
            self._ways.clear()
        stored, sums, parts = dtypes.summing(dtype)
        width = parts * prod(tail)
        way = _Way(width * dtype.itemsize, width, None if stored is dtype else stored, sums,
                   kernels.lanes.lanes_for(sums, width), [None])  # fmt: skip
        self._ways[key] = way
        return way


def _gradient(kind: int, compact: bool, grad: Array, indices: Array, segment_ids: Array, count: Any, *,
              plan: "Plan | None" = None, out: Array | None = None) -> Any:  # fmt: skip
    rows_name = "dense_output_dim0" if compact else "output_dim0"
    rows = check_pairs(grad, indices, segment_ids, rows_name, count)
    if rows == 0 or indices.size == 0:
        # TensorFlow does not look at the ids then, and neither do we; its dense result is uninitialised, ours is zero.
        shape = (0 if compact else rows, *grad.shape[1:])
        output = place(out, shape, grad.dtype, argument=rows_name, zero=True)
        return RowGradient(output, np.empty(0, indices.dtype)) if compact else output
    segments = grad.shape[0]
    if segment_ids[-1] >= segments:
        raise _bad_segment(segment_ids, segment_ids.size - 1, segments, GRAD_ROWS)
    blamed = indices, segment_ids, rows, rows_name, segments, GRAD_ROWS
    return _sum_pairs(kind, grad, indices, segment_ids, rows, blamed, False, compact, rows_name, plan, out)


def _pool_again(kind: int, grad: Array, indices: Array, segment_ids: Array, count: Any, *,
                out: Array | None = None) -> Any:  # fmt: skip
    """The gradient of a gradient: pool as the forward operator, segments in any order, with the backward factors."""
    segments = check_pairs(grad, indices, segment_ids, "num_segments", count)
    if segments == 0 or indices.size == 0:
        return place(out, (segments, *grad.shape[1:]), grad.dtype, argument="num_segments", zero=True)
    blamed = indices, segment_ids, grad.shape[0], GRAD_ROWS, segments, "num_segments"
    return _sum_pairs(kind, grad, segment_ids, indices, segments, blamed, True, False, "num_segments", None, out)


def _index_rank(sorted_unique_indices: Array, indices: Array) -> Array:
    checks.rank("sorted_unique_indices", sorted_unique_indices, 1)
    checks.rank("indices", indices, 1)
    ranks = np.searchsorted(sorted_unique_indices, indices)
    known = ranks < sorted_unique_indices.size
    known[known] = sorted_unique_indices[ranks[known]] == indices[known]
    if not known.all():
        position = int(known.argmin())
        raise OutOfRangeError(
            f"indices[{position}] is {int(indices[position])}, which does not occur in sorted_unique_indices. "
            "Pass the indices that the compact gradient was made from, and its sorted_unique_indices.",
            code="index-out-of-range",
            argument="indices",
            position=position,
            value=int(indices[position]),
        )
    return ranks.astype(np.int64, copy=False)


# Declarations

TYPES = {"T": FLOATS, "Tidx": IDS, "Tseg": IDS}
INDICES = Pin("indices", "Tidx", "[N]", "The table row of each entry; rows may repeat.")
SEGMENT_IDS = Pin("segment_ids", "Tseg", "[N]", "The segment of each entry, in any order; gaps are fine.")
G = [[1.0, 2.0, 3.0], [4.0, 4.0, 2.0], [3.0, 1.0, 5.0]]
SCALES = {"Sum": "1", "Mean": "1 / max(count[s], 1)", "SqrtN": "1 / sqrt(max(count[s], 1))"}
WORDS = {"Sum": "sum", "Mean": "mean", "SqrtN": "sum divided by the square root of the count"}
GRAD_ERRORS = (
    "InvalidArgumentError: indices or segment_ids is not a vector, or they differ in length",
    "InvalidArgumentError: {rows} is not a scalar, or negative",
    "InvalidArgumentError: grad is a scalar",
    "OutOfMemoryError: the result does not fit into memory",
    "OutOfRangeError: an index is not in [0, {rows}), or a segment id not in [0, rows of grad)",
    "DTypeError: a type that is not listed",
)
KEPT = "With {rows} = 0 or no entries the ids are ignored, as in TensorFlow."


def _examples(kind: str) -> Example:
    known = {
        "Sum": ([0, 0, 2], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [3.0, 1.0, 5.0]]),
        "Mean": ([2, 2, 2], [[1.0, 0.333333, 1.666667]] * 3),
        "SqrtN": ([0, 0, 2], [[0.707107, 1.414214, 2.121320]] * 2 + [[3.0, 1.0, 5.0]]),
    }
    segment_ids, output = known[kind]
    inputs = {"grad": G, "indices": [0, 1, 2], "segment_ids": segment_ids, "output_dim0": 3}
    return Example(inputs, {"output": output})


def _formula(kind: str) -> str:
    return (
        "count[s] = how often s occurs in segment_ids\n"
        f"scale[s] = {SCALES[kind]}\n"
        "output[r] = Σ over i with indices[i] = r of grad[segment_ids[i]] · scale[segment_ids[i]], in the order of i"
    )


def _declare_dense(kind: str) -> None:
    declare(Operator(
        name=f"SparseSegment{kind}Grad",
        function=f"sparse_segment_{SNAKE[kind]}_grad",
        family="sparse_segment_grad",
        summary=f"The dense gradient of a pooled look-up ({WORDS[kind]}): one row for each row of the table.",
        inputs=(
            Pin("grad", "T", "[S, ...]", "The gradient of each segment's pooled row."),
            INDICES,
            SEGMENT_IDS,
            Pin("output_dim0", "int32", "[]", "The number of rows of the table; any 64-bit size."),
        ),
        outputs=(Pin("output", "T", "[output_dim0, ...]", "The gradient of the table; rows never looked up are 0."),),
        types=TYPES,
        formula=_formula(kind),
        errors=tuple(text.format(rows="output_dim0") for text in GRAD_ERRORS),
        cost="O(N · (width + log rows)); rows that are not looked up cost only their zeros.",
        example=_examples(kind),
        compute=partial(_gradient, KINDS[kind], False),
        options=("out", "plan"),
        gradient={
            "grad": lambda op, d_output, indices, segment_ids, grad: op[f"SparseSegment{kind}GradGrad"](
                d_output, indices, segment_ids, op.rows(grad)
            )
        },
        notes=KEPT.format(rows="output_dim0"),
    ))  # fmt: skip


def _declare_compact(kind: str) -> None:
    inputs = {"grad": G, "indices": [7, 1, 7], "segment_ids": [0, 0, 2], "dense_output_dim0": 1000}
    outputs: dict[str, Any] = {
        "Sum": [[1.0, 2.0, 3.0], [4.0, 3.0, 8.0]],
        "Mean": [[0.5, 1.0, 1.5], [3.5, 2.0, 6.5]],
        "SqrtN": [[0.707107, 1.414214, 2.121320], [3.707107, 2.414214, 7.121320]],
    }
    declare(Operator(
        name=f"SparseSegment{kind}GradV2",
        function=f"sparse_segment_{SNAKE[kind]}_grad_v2",
        family="sparse_segment_grad",
        summary=f"The compact gradient of a pooled look-up ({WORDS[kind]}): only the rows that were looked up.",
        inputs=(
            Pin("grad", "T", "[S, ...]", "The gradient of each segment's pooled row."),
            INDICES,
            SEGMENT_IDS,
            Pin("dense_output_dim0", "int32", "[]", "The number of rows of the table, which does not affect the cost."),
        ),
        outputs=(
            Pin("output", "T", "[U, ...]", "The gradient of each row that was looked up, in ascending order of rows."),
            Pin("sorted_unique_indices", "Tidx", "[U]", "Which rows these are, ascending."),
        ),
        types=TYPES,
        formula=_formula(kind).replace("output[r]", "row r of the table")
        + "\nsorted_unique_indices = the distinct indices, ascending; output = their rows",
        errors=tuple(text.format(rows="dense_output_dim0") for text in GRAD_ERRORS),
        cost="O(N · (width + log rows)), for any size of the table.",
        example=Example(inputs, {"output": outputs[kind], "sorted_unique_indices": [1, 7]}),
        compute=partial(_gradient, KINDS[kind], True),
        quick=_Small(KINDS[kind]),
        options=("plan",),
        gradient={
            "grad": lambda op, d_output, sorted_unique_indices, indices, segment_ids, grad: op[
                f"SparseSegment{kind}GradGrad"
            ](d_output, op.IndexRank(sorted_unique_indices, indices), segment_ids, op.rows(grad))
        },
        result=RowGradient,
        notes=KEPT.format(rows="dense_output_dim0")
        + " Row u equals row sorted_unique_indices[u] of the dense gradient bit for bit.",
    ))  # fmt: skip


def _declare_grad_grad(kind: str) -> None:
    first = {"Sum": [5.0, 6.0, 5.0], "Mean": [2.5, 3.0, 2.5], "SqrtN": [3.535534, 4.242641, 3.535534]}
    errors = (
        "InvalidArgumentError: indices or segment_ids is not a vector, or they differ in length",
        "InvalidArgumentError: num_segments is not a scalar, or negative",
        "InvalidArgumentError: grad is a scalar",
        "OutOfMemoryError: the result does not fit into memory",
        "OutOfRangeError: an index is not in [0, rows of grad), or a segment id not in [0, num_segments)",
        "DTypeError: a type that is not listed",
    )
    declare(Operator(
        name=f"SparseSegment{kind}GradGrad",
        function=f"sparse_segment_{SNAKE[kind]}_grad_grad",
        raw_only=True,
        family="sparse_segment_grad",
        summary=f"The gradient of SparseSegment{kind}Grad with respect to its grad: pool again, segments in any order.",
        inputs=(
            Pin("grad", "T", "[M, ...]", "The upstream gradient of the dense gradient."),
            INDICES,
            SEGMENT_IDS,
            Pin("num_segments", "int64", "[]", "The number of rows of the dense gradient's grad."),
        ),
        outputs=(Pin("output", "T", "[num_segments, ...]", "The gradient of each segment's gradient row."),),
        types=TYPES,
        formula="count[s] = how often s occurs in segment_ids\n"
        f"scale[s] = {SCALES[kind]}\n"
        "output[s] = Σ over i with segment_ids[i] = s of grad[indices[i]] · scale[s], in the order of i",
        errors=errors,
        cost="O(N · (width + log segments)); sorted segment ids are detected and not sorted again.",
        example=Example(
            {"grad": G, "indices": [0, 1, 2], "segment_ids": [0, 0, 2], "num_segments": 3},
            {"output": [first[kind], [0.0, 0.0, 0.0], [3.0, 1.0, 5.0]]},
        ),
        compute=partial(_pool_again, KINDS[kind]),
        options=("out",),
        gradient={
            "grad": lambda op, d_output, indices, segment_ids, grad: op[f"SparseSegment{kind}Grad"](
                d_output, indices, segment_ids, op.rows(grad)
            )
        },
        in_tensorflow=False,
    ))  # fmt: skip


for _kind in KINDS:
    _declare_dense(_kind)
    _declare_compact(_kind)
    _declare_grad_grad(_kind)

declare(Operator(
    name="IndexRank",
    function="index_rank",
    raw_only=True,
    family="sparse_segment_grad",
    summary="The position of each index among the sorted distinct ones: its row in the compact gradient.",
    inputs=(
        Pin("sorted_unique_indices", "Tidx", "[U]", "Distinct indices, ascending, as in a compact gradient."),
        Pin("indices", "Tind", "[N]", "The indices to look up."),
    ),
    outputs=(Pin("ranks", "int64", "[N]", "sorted_unique_indices[ranks[i]] = indices[i]."),),
    types={"Tidx": IDS, "Tind": IDS},
    formula="ranks[i] = the u with sorted_unique_indices[u] = indices[i]",
    errors=(
        "InvalidArgumentError: an input is not a vector",
        "OutOfRangeError: an index does not occur in sorted_unique_indices",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · log U).",
    example=Example({"sorted_unique_indices": [1, 7], "indices": [7, 1, 7]}, {"ranks": [1, 0, 1]}),
    compute=_index_rank,
    in_tensorflow=False,
))  # fmt: skip
