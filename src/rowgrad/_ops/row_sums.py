"""Values summed into the rows that ids name, in the order of input: what gradients of pooled look-ups are made of.

Each entry is a pair (row, partner): the row of `values` at its partner, times a factor, is added to its row. Large
calls sort the entries by row, and threads sum the rows. Small ones, and results that the caches hold, take one kernel.
`sparse_segment_grad` declares the operators; optimizers and the other families use the parts.
"""

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import CACHED_GRAINS, MEAN, SMALL, SUM
from rowgrad._ops import checks
from rowgrad._ops.order import COUNT_PARTNERS, COUNT_ROWS, LARGE_CALL, Order, one_id_type, order_ids
from rowgrad._ops.quick import CODE, ID_TYPES, MOST_WAYS, NDARRAY, first_call, is_plain
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import dtypes, threads
from rowgrad._runtime.dtypes import FLOATS, Array
from rowgrad._runtime.memory import POOLED, allocate, borrow_work, is_nontemporal, place, place_uncleared, return_work
from rowgrad._runtime.threads import Workers
from rowgrad.errors import RowgradError

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan

# What `diagnose` takes behind the position: indices, segment ids, and their limits with the names of these.
Blamed = tuple[Array, Array, int, str, int, str]
GRAD_ROWS = "the number of rows of grad"
NOTHING = np.empty(0, np.int64)
INT64 = np.dtype(np.int64)
GRAD_TYPES = frozenset(dtypes.NUMPY[name] for name in FLOATS)
FEW_SEGMENTS = 1 << 18  # whose factors NumPy makes as fast as a kernel that would have to be compiled first
SMALL_ROW = 4096  # bytes in a row up to which a call of few entries counts as small


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
    return bad_segment(segment_ids, position, segments, segments_name)


def bad_segment(segment_ids: Array, position: int, segments: int, segments_name: str) -> RowgradError:
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
    nontemporal = is_nontemporal(output, output.nbytes // shape[0] if shape[0] else 0)
    workers.run(
        kernels.sparse_segment_grad.sum_rows, order.words, order.shift, order.row_starts,
        values.reshape(-1).view(stored), width, *factors, compact, lanes, flat,
        unique if rows is None else np.empty(shape[0] if compact else 0, np.int64),
        None if sources is None else (sources, values.shape[0]),
        nontemporal and 4 * order.distinct >= 3 * order.words.size,
    )  # fmt: skip
    if not compact and not is_zero:
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


def sum_pairs(kind: int, values: Array, rows: Array, partners: Array, row_limit: int, blamed: Blamed, by_row: bool,
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
        unique = allocate((order.distinct,), np.int64)
        output = sum_rows(workers, order, values, factors, rows=None, unique=unique, argument=argument)
        return RowGradient(output, unique.astype(rows.dtype, copy=False))
    return sum_rows(workers, order, values, factors, rows=row_limit, argument=argument, out=out)


def _add_rows(kind: int, values: Array, rows: Array, partners: Array, row_limit: int, blamed: Blamed, by_row: bool,
              argument: str, out: Array | None, scaled: int) -> Array:  # fmt: skip
    """The same into a dense result that the caches hold: without sorting, in the order of input."""
    partner_limit, *tail = values.shape
    shape, dtype, width = (row_limit, *tail), values.dtype, prod(tail)
    if out is None and row_limit * width * dtype.itemsize < POOLED:
        output = np.empty(shape, dtype)
    else:
        output = place(out, shape, dtype, argument=argument, zero=False)
    if rows.size >= LARGE_CALL:
        rows, partners = one_id_type(rows, partners)
    else:
        rows, partners = rows.astype(INT64, copy=False), partners.astype(INT64, copy=False)
    lanes = kernels.lanes.lanes_for(dtype, width)
    add = CODE[kernels.sparse_segment_grad.add_rows, dtype, lanes.ndim, rows.dtype]
    position = add(
        rows, partners, row_limit, partner_limit, kind, by_row, values.ravel(), width, lanes, output.ravel(),
        np.empty(scaled, INT64), np.empty(scaled, dtype),
    )  # fmt: skip
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


class Small:
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
