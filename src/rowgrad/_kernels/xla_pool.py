"""Kernels that XLA calls for look-ups: pooled rows of a table, the largest of them, and dot products of rows."""

import numpy as np

from rowgrad._kernels.compile import inline_late, kernel, part_of
from rowgrad._kernels.kinds import AHEAD, CACHED_TABLE
from rowgrad._kernels.lanes import zeros
from rowgrad._kernels.raw import fill_range, peek, poke
from rowgrad._kernels.segment_max import max_rows
from rowgrad._kernels.sharing import STRIDE, atomic_add, share
from rowgrad._kernels.sparse_segment import pool_chunk
from rowgrad._kernels.team import at
from rowgrad._kernels.weighted_sum import dot_rows
from rowgrad._kernels.xla_frame import (
    DONE,
    LEFT,
    WORDS,
    argument,
    chunks_for,
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
    word,
    workers_at,
)
from rowgrad._kernels.xla_order import MOST_CHUNKS, ORDER_KERNELS, SORTED_WORDS, bits_of, order, order_bytes

_max_rows, _dot_rows = part_of(max_rows), part_of(dot_rows)

POOL_WORDS = 2 * STRIDE
WRONG = STRIDE + 1
DOT_WORDS = shared_words(1, MOST_CHUNKS)


@inline_late
def _pool_part(shared, chunks, indices, ids, rows, data_rows, data, width, kind, lanes_for, wide, scaled, output,
               ahead):  # fmt: skip
    counters = at(WORDS, shared)
    for chunk in share((counters, counters), 0, chunks):
        if pool_chunk(indices, ids, chunk, chunks, rows, data_rows, data, width, kind, zeros(lanes_for), wide, scaled,
                      output, False, True, ahead):  # fmt: skip
            atomic_add(counters, WRONG, 1)
    return np.int64(DONE) if peek(counters, WRONG) == 0 else np.int64(LEFT)


@kernel
def pool(frame, threads, kind, stored, indices_kind, ids_kind, lanes_kind, wide, scaled):
    """SparseSegment{Sum, Mean, SqrtN}: data, indices, segment_ids → output."""
    table, output = argument(frame, 0), result(frame, 0)
    size, data_rows, rows = size_of(argument(frame, 1), 0), size_of(table, 0), size_of(output, 0)
    width = product_of(output, 1)
    values = at(empty(stored), data_of(table))
    target = sized(empty(stored), data_of(output), rows * width)
    if size == 0:
        fill_range(target, 0, rows * width, 0)
        return DONE
    if width == 0:
        return LEFT
    used = threads_for(size * (16 + width * values.itemsize), threads)
    ahead = AHEAD if data_rows * width * values.itemsize > CACHED_TABLE else 0
    indices = sized(empty(indices_kind), data_of(argument(frame, 1)), size)
    ids = sized(empty(ids_kind), data_of(argument(frame, 2)), size)
    return together(frame, used, POOL_WORDS, _pool_part,
                    (chunks_for(used), indices, ids, rows, data_rows, values, width, kind, empty(lanes_kind), wide,
                     scaled, target, ahead))  # fmt: skip


@inline_late
def _max_part(shared, chunks, strips, ids, indices, segments, data_rows, scratch, size, data, width, lanes_for, output,
              chosen):  # fmt: skip
    words, shift, bad = order(shared, chunks, strips, ids, indices, segments, data_rows, scratch, size, 0)
    if bad:
        return np.int64(LEFT)
    _max_rows(workers_at(shared, ORDER_KERNELS), chunks, words, shift, segments, data, width, lanes_for, output, chosen)
    return np.int64(DONE)


@kernel
def largest(frame, threads, kind, stored, indices_kind, ids_kind, lanes_kind, chosen_kind):
    """SparseSegmentMax: data, indices, segment_ids → output, chosen.

    `chosen_kind` is None where JAX has 64 bits; else the rows that were chosen are written as int64, then copied.
    """
    table, output = argument(frame, 0), result(frame, 0)
    size, data_rows, segments = size_of(argument(frame, 1), 0), size_of(table, 0), size_of(output, 0)
    width = product_of(output, 1)
    if size == 0 or width == 0 or bits_of(segments) + bits_of(data_rows) > 63:
        return LEFT
    data = at(empty(stored), data_of(table))
    used = threads_for(size * (16 + width * data.itemsize), threads)
    room = order_bytes(size, segments, used, 0)
    scratch = reserve(room if chosen_kind is None else room + 8 * segments * width)
    if scratch == 0:
        return LEFT
    chosen = data_of(result(frame, 1)) if chosen_kind is None else scratch + room
    done = together(frame, used, SORTED_WORDS, _max_part,
                    (chunks_for(used), used, sized(empty(ids_kind), data_of(argument(frame, 2)), size),
                     sized(empty(indices_kind), data_of(argument(frame, 1)), size), segments, data_rows, scratch, size,
                     data, width, empty(lanes_kind), sized(empty(stored), data_of(output), segments * width),
                     sized(WORDS, chosen, segments * width)))  # fmt: skip
    if chosen_kind is not None:
        copy = at(empty(chosen_kind), data_of(result(frame, 1)))
        for i in range(segments * width):
            poke(copy, i, word(chosen, i))
    release(scratch)
    return done


@inline_late
def _dot_part(shared, chunks, left, left_rows, left_limit, right, right_rows, right_limit, width, sums, dots):
    wrong = _dot_rows(workers_at(shared, 0), chunks, left, left_rows, left_limit, right, right_rows, right_limit, width,
                     sums, dots, sized(WORDS, kept_at(shared, 1), MOST_CHUNKS))  # fmt: skip
    return np.int64(DONE) if wrong < 0 else np.int64(LEFT)


@kernel
def dots(frame, threads, kind, stored, left_kind, right_kind, sums, output_kind):
    """RowDot: a, b, a_rows, b_rows → dots."""
    left, right, output = argument(frame, 0), argument(frame, 1), result(frame, 0)
    size, width = size_of(output, 0), product_of(left, 1)
    if size == 0:
        return DONE
    values = at(empty(stored), data_of(left))
    used = threads_for(size * (16 + 2 * width * values.itemsize), threads)
    return together(frame, used, DOT_WORDS, _dot_part,
                    (chunks_for(used), values, sized(empty(left_kind), data_of(argument(frame, 2)), size),
                     size_of(left, 0), at(empty(stored), data_of(right)),
                     sized(empty(right_kind), data_of(argument(frame, 3)), size), size_of(right, 0), width,
                     empty(sums), sized(empty(output_kind), data_of(output), size)))  # fmt: skip
