"""Kernels that XLA calls for plain segments, and for the gradients of filled rows and of slices."""

import numpy as np

from rowgrad._kernels.compile import inline_late, kernel, part_of
from rowgrad._kernels.fill_empty_rows_grad import fill_grad
from rowgrad._kernels.kinds import MEAN, SUM
from rowgrad._kernels.raw import fill_range, peek, poke
from rowgrad._kernels.segments import reduce_narrow, reduce_unsorted, reduce_wide
from rowgrad._kernels.segments_grad import take_rows
from rowgrad._kernels.sparse_slice import send
from rowgrad._kernels.team import at
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
from rowgrad._kernels.xla_order import MOST_CHUNKS

_reduce_wide, _reduce_narrow, _reduce_unsorted = part_of(reduce_wide), part_of(reduce_narrow), part_of(reduce_unsorted)
_take_rows, _fill_grad, _send_entries = part_of(take_rows), part_of(fill_grad), part_of(send)

PACKET = 32  # bytes that TensorFlow reduces side by side
BYTES = np.empty(0, np.uint8)
ZERO = 1  # words that stay 0, in whatever type
SEGMENT_WORDS = shared_words(1, ZERO + MOST_CHUNKS)


@inline_late
def _bad_at(shared):
    return sized(WORDS, kept_at(shared, 1) + 8 * ZERO, MOST_CHUNKS)


@inline_late
def _sorted_part(shared, chunks, ids, rows, data, width, packed, is_packed, reduction, sums, lanes_for, output):
    zero, none = sized(sums, kept_at(shared, 1), 1), sized(output, kept_at(shared, 1), 1)
    if is_packed is None:
        wrong = _reduce_narrow(workers_at(shared, 0), chunks, ids, rows, data, width, reduction, zero, none, False,
                               lanes_for, output, _bad_at(shared))  # fmt: skip
    else:
        wrong = _reduce_wide(workers_at(shared, 0), chunks, ids, rows, data, width, packed, reduction, reduction, zero,
                             none, lanes_for, output, False, _bad_at(shared))  # fmt: skip
    return np.int64(DONE) if wrong < 0 else np.int64(LEFT)


@kernel
def sum_sorted(frame, threads, setting, stored, ids_kind, lanes_kind, reduction, sums, is_packed):
    """SegmentSumV2: data, segment_ids, count → output. `is_packed` is None where no column is in a whole packet."""
    values, output = argument(frame, 0), result(frame, 0)
    size, rows, width = size_of(argument(frame, 1), 0), count_of(frame, 2), product_of(output, 1)
    target = sized(empty(stored), data_of(output), rows * width)
    if size == 0:
        fill_range(target, 0, rows * width, 0)
        return DONE
    packet = PACKET // target.itemsize
    # Where columns were not known when the kernel was chosen, packets may be found only now.
    if width == 0 or rows == 0 or (is_packed is None and target.itemsize > 2 and width >= packet):
        return LEFT
    used = threads_for(size * (8 + width * target.itemsize), threads)
    ids = sized(empty(ids_kind), data_of(argument(frame, 1)), size)
    return together(frame, used, SEGMENT_WORDS, _sorted_part,
                    (chunks_for(used), ids, rows, at(empty(stored), data_of(values)), width, width // packet * packet,
                     is_packed, empty(reduction), empty(sums), empty(lanes_kind), target))  # fmt: skip


@inline_late
def _find_divisors(ids, size, rows, kind, counts, divisors):
    """What sums are divided by: how many rows each segment has, at least 1, or the root of that."""
    fill_range(counts, 0, rows, 0)
    for i in range(size):
        row = peek(ids, i)
        if 0 <= row < rows:
            poke(counts, row, peek(counts, row) + 1)
    for row in range(rows):
        number = np.float64(max(peek(counts, row), 1))
        poke(divisors, row, number if kind == MEAN else np.sqrt(number))


@inline_late
def _unsorted_part(shared, chunks, strips, ids, rows, data, width, reduction, divisors, sums, lanes_for, totals, rounds,
                   output):  # fmt: skip
    wrong = _reduce_unsorted(workers_at(shared, 0), chunks, strips, ids, rows, data, width, reduction,
                             sized(sums, kept_at(shared, 1), 1), divisors, lanes_for, totals, rounds, output,
                             _bad_at(shared))  # fmt: skip
    return np.int64(DONE) if wrong < 0 else np.int64(LEFT)


@kernel
def sum_unsorted(frame, threads, kind, stored, ids_kind, lanes_kind, reduction, sums, in_place):
    """UnsortedSegment{Sum, Mean, SqrtN}: data, segment_ids, count → output.

    `in_place` is None where sums are divided, or made in another type than they are stored in.
    """
    values, output = argument(frame, 0), result(frame, 0)
    size, rows, width = product_of(argument(frame, 1), 0), count_of(frame, 2), product_of(output, 1)
    target = sized(empty(stored), data_of(output), rows * width)
    if size == 0 or width == 0 or rows == 0:
        if product_of(values, 0) > 0:
            return LEFT  # an id may be wrong
        fill_range(target, 0, rows * width, 0)
        return DONE
    used = threads_for(size * (8 + width * 4), threads)
    ids = sized(empty(ids_kind), data_of(argument(frame, 1)), size)
    data = at(empty(stored), data_of(values))
    number = rows if kind != SUM else np.int64(0)
    if in_place is not None:
        return together(frame, used, SEGMENT_WORDS, _unsorted_part,
                        (chunks_for(used), used, ids, rows, data, width, empty(reduction), sized(empty(sums), 0, 0),
                         empty(sums), empty(lanes_kind), target, False, target))  # fmt: skip
    scratch = reserve(8 * (rows * width + 2 * number))
    if scratch == 0:
        return LEFT
    divisors = sized(empty(sums), scratch + 8 * rows * width, number)
    if kind != SUM:
        counts = sized(WORDS, scratch + 8 * (rows * width + number), number)
        _find_divisors(ids, size, rows, kind, counts, divisors)
    done = together(frame, used, SEGMENT_WORDS, _unsorted_part,
                    (chunks_for(used), used, ids, rows, data, width, empty(reduction), divisors, empty(sums),
                     empty(lanes_kind), sized(empty(sums), scratch, rows * width), True, target))  # fmt: skip
    release(scratch)
    return done


@inline_late
def _take_part(shared, chunks, ids, rows, grad, width, divisors, lanes_for, output):
    wrong = _take_rows(workers_at(shared, 0), chunks, ids, rows, grad, width, divisors, lanes_for, output,
                       _bad_at(shared))  # fmt: skip
    return np.int64(DONE) if wrong < 0 else np.int64(LEFT)


@kernel
def take(frame, threads, kind, stored, ids_kind, lanes_kind, sums):
    """Segment{Sum, Mean, SqrtN}Grad: grad, segment_ids → output."""
    grad, output = argument(frame, 0), result(frame, 0)
    size, rows, width = product_of(argument(frame, 1), 0), size_of(grad, 0), product_of(grad, 1)
    if size == 0 or width == 0:
        return DONE
    target = sized(empty(stored), data_of(output), size * width)
    ids = sized(empty(ids_kind), data_of(argument(frame, 1)), size)
    used = threads_for(size * (8 + 2 * width * target.itemsize), threads)
    number = rows if kind != SUM else np.int64(0)
    scratch = reserve(16 * number)
    if scratch == 0:
        return LEFT
    divisors = sized(empty(sums), scratch, number)
    if kind != SUM:
        counts = sized(WORDS, scratch + 8 * number, number)
        _find_divisors(ids, size, rows, kind, counts, divisors)
    done = together(frame, used, SEGMENT_WORDS, _take_part,
                    (chunks_for(used), ids, rows, at(empty(stored), data_of(grad)), width, divisors, empty(lanes_kind),
                     target))  # fmt: skip
    release(scratch)
    return done


@kernel
def fill_gradient(frame, threads, setting, stored, ids_kind, sums):
    """{Sparse, Ragged}FillEmptyRowsGrad: reverse_index_map, grad_values → d_values, d_default_value."""
    size, full = size_of(argument(frame, 0), 0), size_of(argument(frame, 1), 0)
    scratch = reserve(full)
    if scratch == 0:
        return LEFT
    wrong = _fill_grad(sized(empty(ids_kind), data_of(argument(frame, 0)), size),
                       sized(empty(stored), data_of(argument(frame, 1)), full), None, empty(sums), None,
                       sized(BYTES, scratch, full),
                       sized(empty(stored), data_of(result(frame, 0)), size),
                       sized(empty(stored), data_of(result(frame, 1)), 1))  # fmt: skip
    release(scratch)
    return LEFT if wrong >= 0 else DONE


@inline_late
def _widened(ids, size, address):
    """The ids as int64, at `address`."""
    words = sized(WORDS, address, size)
    for i in range(size):
        poke(words, i, peek(ids, i))
    return words


@kernel
def sliced(frame, threads, setting, stored, ids_kind, forwards):
    """SparseSliceGrad, and `forwards` SparseSliceGradGrad: values, input_indices, start, output_indices → values."""
    inputs, outputs = argument(frame, 1), argument(frame, 3)
    entries, selected, rank = size_of(inputs, 0), size_of(outputs, 0), size_of(inputs, 1)
    written = entries if forwards is None else selected
    target = sized(empty(stored), data_of(result(frame, 0)), written)
    if selected == 0:
        fill_range(target, 0, written, 0)
        return DONE
    scratch = reserve(8 * (entries + selected + 1) * rank)
    if scratch == 0:
        return LEFT
    ids = empty(ids_kind)
    behind = scratch + 8 * entries * rank
    matched = _send_entries(_widened(at(ids, data_of(inputs)), entries * rank, scratch), entries,
                            _widened(at(ids, data_of(outputs)), selected * rank, behind), selected, rank,
                            _widened(at(ids, data_of(argument(frame, 2))), rank, behind + 8 * selected * rank),
                            forwards, sized(empty(stored), data_of(argument(frame, 0)), entries + selected - written),
                            None, target)  # fmt: skip
    release(scratch)
    return DONE if matched == selected else LEFT
