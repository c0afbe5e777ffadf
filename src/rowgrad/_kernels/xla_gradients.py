"""Kernels that XLA calls for gradients of look-ups, and for weighted sums: entries are sorted by row, then summed.

The sums are those of `sparse_segment_grad`, in the same order, so results have the same bits.
"""

import numpy as np

from rowgrad._kernels.compile import inline, inline_late, kernel, part_of
from rowgrad._kernels.kinds import CACHED_GRAINS, GRAIN, SMALL, SUM
from rowgrad._kernels.lanes import load, store, zeros1
from rowgrad._kernels.order import COUNT_PARTNERS, COUNT_ROWS, DISTINCT
from rowgrad._kernels.raw import fill_range, peek, poke
from rowgrad._kernels.sparse_segment_grad import add_rows, clear_gaps, scales, sum_rows
from rowgrad._kernels.team import at
from rowgrad._kernels.weighted_sum import first_outside
from rowgrad._kernels.xla_frame import (
    DONE,
    LEFT,
    WORDS,
    argument,
    chunks_for,
    count_of,
    data_of,
    empty,
    kept_at,
    product_of,
    release,
    reserve,
    result,
    shared_words,
    size_of,
    sized,
    threads_for,
    together,
    workers_at,
)
from rowgrad._kernels.xla_order import (
    MOST_CHUNKS,
    ORDER_KERNELS,
    SORTED_KERNELS,
    SORTED_WORDS,
    bits_of,
    counts_at,
    info_at,
    order,
    order_bytes,
    starts_at,
)

_add_rows, _clear_gaps, _first_outside = part_of(add_rows), part_of(clear_gaps), part_of(first_outside)
_scales, _sum_rows = part_of(scales), part_of(sum_rows)

BY_ROW = 4  # of a setting: the factor is that of the row, not of its partner
SWAPPED = 8  # of a setting: rows are the second ids, partners the first
WEIGHTED_WORDS = shared_words(SORTED_KERNELS, 2 * MOST_CHUNKS)
UNIQUE = 24  # bytes for an entry of a compact gradient, beside its words


@inline_late
def _sum_part(shared, chunks, strips, rows, partners, row_limit, partner_limit, scratch, size, kind, counted, number,
              factors, values, width, compact, most, lanes_for, output, unique, sources):  # fmt: skip
    """Sort, scale and sum, by all threads: DONE, or LEFT if an id is wrong or there is no room for all rows."""
    if sources is not None:
        # Not where `order` keeps its own: a thread that is ahead writes these while another still reads here.
        bad = sized(WORDS, kept_at(shared, SORTED_KERNELS) + 8 * MOST_CHUNKS, MOST_CHUNKS)
        if _first_outside(workers_at(shared, ORDER_KERNELS), chunks, sources[0], sources[1], bad) >= 0:
            return np.int64(LEFT)
    words, shift, is_bad = order(
        shared, chunks, strips, rows, partners, row_limit, partner_limit, scratch, size, counted
    )
    if is_bad or (compact and peek(info_at(shared), DISTINCT) > most):
        return np.int64(LEFT)
    factor_shift, factor_mask = np.int64(0), (np.int64(1) << shift) - 1
    if sources is None:
        if kind == SUM:
            factor_mask = np.int64(0)
        else:
            _scales(workers_at(shared, ORDER_KERNELS), chunks, kind, counts_at(scratch, size, number), factors)
            if counted == COUNT_ROWS:
                factor_shift, factor_mask = shift, np.int64(-1)
    _sum_rows(workers_at(shared, ORDER_KERNELS + 1), chunks, words, shift, starts_at(scratch, size, chunks), values,
             width, factors, factor_shift, factor_mask, compact, lanes_for, output, unique, sources, False)  # fmt: skip
    if not compact:
        _clear_gaps(workers_at(shared, ORDER_KERNELS + 2), chunks, words, shift, row_limit, width, lanes_for, output,
                   False)  # fmt: skip
    return np.int64(DONE) if not compact else -1 - peek(info_at(shared), DISTINCT)


@inline
def _finish_compact(found, most, row_limit, width, output, unique, target):
    """Copy the rows that occur to their place, and pad what is left of the results."""
    for i in range(found):
        poke(target, i, peek(unique, i))
    fill_range(target, found, most, row_limit)
    fill_range(output, found * width, most * width, 0)


@kernel
def gradient(frame, threads, setting, stored, ids_kind, partners_kind, lanes_kind, unique_kind, in_place):
    """SparseSegment*Grad, GradV2 and GradGrad: grad, indices, segment_ids, count → output (and the rows that occur).

    `unique_kind` is None for dense results, and `in_place` None where sums are made in another type than they are
    stored in.
    """
    grad, output = argument(frame, 0), result(frame, 0)
    size, width, partner_limit = size_of(argument(frame, 1), 0), product_of(output, 1), size_of(grad, 0)
    row_limit, most = count_of(frame, 3), size_of(output, 0)
    kind, by_row = setting & 3, (setting & BY_ROW) != 0
    target = sized(empty(stored), data_of(output), most * width)
    if unique_kind is None and (row_limit == 0 or size == 0):
        fill_range(target, 0, row_limit * width, 0)  # TensorFlow does not look at the ids then, and neither do we
        return DONE
    if row_limit == 0 or size == 0 or width == 0 or bits_of(row_limit) + bits_of(partner_limit) > 63:
        return LEFT
    first, second = (2, 1) if (setting & SWAPPED) != 0 else (1, 2)
    rows = sized(empty(ids_kind), data_of(argument(frame, first)), size)
    partners = sized(empty(partners_kind), data_of(argument(frame, second)), size)
    values = at(empty(stored), data_of(grad))
    number = np.int64(0) if kind == SUM else row_limit if by_row else partner_limit
    row_bytes = width * values.itemsize
    is_cached = (row_limit + size) * row_bytes <= CACHED_GRAINS * GRAIN and number <= 4 * size + SMALL
    used = threads_for(size * (16 + row_bytes), threads)
    if unique_kind is None and in_place is not None and is_cached:
        used = np.int64(1)
    scratch = reserve(order_bytes(size, row_limit, used, number) + 8 * (number + size + 8))
    if scratch == 0:
        return LEFT
    counts = counts_at(scratch, size, number)
    factors = sized(empty(lanes_kind), scratch + order_bytes(size, row_limit, used, number), max(number, 1))
    unique = sized(WORDS, scratch + order_bytes(size, row_limit, used, number) + 8 * (number + 8), size)
    if unique_kind is None and in_place is not None and is_cached:
        wrong = _add_rows(rows, partners, row_limit, partner_limit, kind, by_row, values, width, empty(lanes_kind),
                         target, counts_at(scratch, size, max(number, 1)), factors)  # fmt: skip
        release(scratch)
        return LEFT if wrong >= 0 else DONE
    fill_range(counts, 0, number, 0)
    poke(factors, 0, 1)
    counted = 0 if kind == SUM else COUNT_ROWS if by_row else COUNT_PARTNERS
    done = together(frame, used, SORTED_WORDS, _sum_part,
                    (chunks_for(used), used, rows, partners, row_limit, partner_limit, scratch, size, kind, counted,
                     number, factors, values, width, unique_kind is not None, most, empty(lanes_kind), target, unique,
                     None))  # fmt: skip
    if unique_kind is not None and done < 0:
        _finish_compact(-1 - done, most, row_limit, width, target, unique,
                        sized(empty(unique_kind), data_of(result(frame, 1)), most))  # fmt: skip
        done = np.int64(DONE)
    release(scratch)
    return done


@kernel
def weighted(frame, threads, setting, stored, targets_kind, sources_kind, lanes_kind, unique_kind, weights_kind):
    """SparseSegmentWeightedSum and its GradV2: values, weights, indices, segment_ids, count → output (and rows)."""
    table, output = argument(frame, 0), result(frame, 0)
    size, width, source_limit = size_of(argument(frame, 2), 0), product_of(output, 1), size_of(table, 0)
    row_limit, most = count_of(frame, 4), size_of(output, 0)
    target = sized(empty(stored), data_of(output), most * width)
    if unique_kind is None and size == 0:
        fill_range(target, 0, row_limit * width, 0)
        return DONE
    if row_limit == 0 or size == 0 or width == 0 or bits_of(row_limit) + bits_of(size) > 63:
        return LEFT
    first, second = (3, 2) if (setting & SWAPPED) != 0 else (2, 3)
    rows = sized(empty(targets_kind), data_of(argument(frame, first)), size)
    sources = sized(empty(sources_kind), data_of(argument(frame, second)), size)
    values = at(empty(stored), data_of(table))
    used = threads_for(size * (16 + width * values.itemsize), threads)
    scratch = reserve(order_bytes(size, row_limit, used, 0) + 16 * size)
    if scratch == 0:
        return LEFT
    # Each weight is rounded to the type that the sums are made in.
    factors = sized(empty(lanes_kind), scratch + order_bytes(size, row_limit, used, 0), size)
    unique = sized(WORDS, scratch + order_bytes(size, row_limit, used, 0) + 8 * size, size)
    weights = at(empty(weights_kind), data_of(argument(frame, 1)))
    for i in range(size):
        store(factors, i, load(zeros1(factors), weights, i))
    done = together(frame, used, WEIGHTED_WORDS, _sum_part,
                    (chunks_for(used), used, rows, None, row_limit, size, scratch, size, SUM, 0, np.int64(0), factors,
                     values, width, unique_kind is not None, most, empty(lanes_kind), target, unique,
                     (sources, source_limit)))  # fmt: skip
    if unique_kind is not None and done < 0:
        _finish_compact(-1 - done, most, row_limit, width, target, unique,
                        sized(empty(unique_kind), data_of(result(frame, 1)), most))  # fmt: skip
        done = np.int64(DONE)
    release(scratch)
    return done
