"""Kernels of the forward segment operators: pool the rows of each segment.

Segment ids are sorted here, so segments are runs and nothing has to be sorted. The order of the additions is
TensorFlow's: the first few rows left to right, then blocks of eight rows that are summed by themselves.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.ids import bounded_id, read_id
from rowgrad._kernels.kinds import MEAN, SUM
from rowgrad._kernels.lanes import (
    choose,
    count,
    fill,
    load,
    minus_zero,
    store,
    store_past,
    zeros1,
    zeros16,
    zeros64,
    zeros128,
    zeros256,
)
from rowgrad._kernels.raw import prefetch
from rowgrad._kernels.team import chunk_start, claim, enter, finish, leave, lowest, wait

BLOCK = 8
LINE = 64  # bytes in a cache line
AHEAD = 32  # lines of the table that are fetched before they are needed; more would drive out one another
SHORT = 10  # segments shorter than this are scaled by a product, longer ones by a division


@inline
def _any_outside(ids, step, first, last, limit):
    """Whether an id is not in [0, limit). (Simple enough for LLVM to vectorise, as the next one.)"""
    wrong = False
    for i in range(first, last):
        here = read_id(ids, step, i)
        wrong |= (here < 0) | (here >= limit)
    return wrong


@inline
def _any_falls(ids, step, first, last, limit):
    """Whether an id is smaller than the one before, or not below `limit`; the very first must not be negative."""
    wrong = first == 0 and first < last and read_id(ids, step, 0) < 0
    for i in range(max(first, 1), last):
        here = read_id(ids, step, i)
        wrong |= (here < read_id(ids, step, i - 1)) | (here >= limit)
    return wrong


@inline
def _first_bad(indices, index_step, ids, id_step, first, last, rows, data_rows):
    """The first position whose id or index is wrong, or -1."""
    # As constants, the steps leave loops without branches.
    if index_step == 1:
        wrong = _any_outside(indices, 1, first, last, data_rows)
    else:
        wrong = _any_outside(indices, 2, first, last, data_rows)
    if id_step == 1:
        wrong |= _any_falls(ids, 1, first, last, rows)
    else:
        wrong |= _any_falls(ids, 2, first, last, rows)
    if not wrong:
        return -1
    before = read_id(ids, id_step, first - 1) if first > 0 else np.int64(0)
    for i in range(first, last):
        segment = read_id(ids, id_step, i)
        index = read_id(indices, index_step, i)
        if segment < before or segment >= rows or index < 0 or index >= data_rows:
            return i
        before = segment
    return first  # corrected by another thread since; the call is refused all the same


@inline
def _sum_segment(zeros, wide, indices, index_step, first, last, head, size, data_rows, data, width, column):
    """The first `head` rows left to right, then blocks of eight rows, each summed by itself.

    It is one loop over the entries, so that the processor sees far ahead. Where a block ends can often not be
    predicted; narrow rows therefore do without a branch, at the price of additions of −0.
    """
    nothing = minus_zero(zeros)
    total = nothing
    run = nothing
    left = head
    rows_ahead = AHEAD * LINE // max(LINE, count(zeros) * data.itemsize)
    for i in range(first, last):
        ahead = read_id(indices, index_step, min(i + rows_ahead, size - 1)) * width + column
        for line in range(0, count(zeros), LINE // data.itemsize):
            prefetch(data, ahead + line)
        prefetch(data, ahead + count(zeros) - 1)  # arrays of NumPy do not begin where a cache line does
        row = load(zeros, data, bounded_id(indices, index_step, i, data_rows) * width + column)
        if wide:
            if left == 0:
                total = total + run
                run = nothing
                left = BLOCK
            run = run + row
        else:
            ends = left == 0
            total = total + choose(ends, run, nothing)
            run = choose(ends, nothing, run) + row
            if ends:
                left = BLOCK
        left -= 1
    return total + run


@inline
def _pool_columns(zeros, wide, column, indices, index_step, first, last, head, size, data_rows, data, width, kind,
                  divisor, output, past, segment):  # fmt: skip
    """Pool as many columns from `column` on as blocks of the width of `zeros` cover; returns the next column."""
    while column + count(zeros) <= width:
        total = _sum_segment(zeros, wide, indices, index_step, first, last, head, size, data_rows, data, width,
                             column)  # fmt: skip
        if kind != SUM and last - first > 1:
            if last - first < SHORT:
                total = total * (fill(zeros, 1) / fill(zeros, divisor))
            else:
                total = total / fill(zeros, divisor)
        if past:
            store_past(output, segment * width + column, total)
        else:
            store(output, segment * width + column, total)
        column += count(zeros)
    return column


@inline
def _pool_chunk(first, stop, indices, index_step, ids, id_step, size, rows, data_rows, data, width, kind, sums, output,
                past, clear):  # fmt: skip
    """Pool the segments that begin between `first` and `stop`, and zero the rows before each if `clear`."""
    while 0 < first < stop and read_id(ids, id_step, first) == read_id(ids, id_step, first - 1):
        first += 1  # this segment began in an earlier chunk, and is pooled there
    before = bounded_id(ids, id_step, first - 1, rows) if first > 0 else np.int64(-1)
    while first < stop:
        segment = bounded_id(ids, id_step, first, rows)
        last = first + 1
        while last < size and read_id(ids, id_step, last) == segment:
            last += 1
        if clear and segment > before + 1:
            output[(before + 1) * width : segment * width] = 0
        length = last - first
        head = length % BLOCK
        if head < 2:
            head += BLOCK
        divisor = np.float64(length) if kind == MEAN else np.sqrt(np.float64(length))
        column = _pool_columns(zeros256(sums), True, 0, indices, index_step, first, last, head, size, data_rows,
                               data, width, kind, divisor, output, past, segment)  # fmt: skip
        column = _pool_columns(zeros128(sums), False, column, indices, index_step, first, last, head, size, data_rows,
                               data, width, kind, divisor, output, past, segment)  # fmt: skip
        column = _pool_columns(zeros64(sums), False, column, indices, index_step, first, last, head, size, data_rows,
                               data, width, kind, divisor, output, past, segment)  # fmt: skip
        column = _pool_columns(zeros16(sums), False, column, indices, index_step, first, last, head, size, data_rows,
                               data, width, kind, divisor, output, past, segment)  # fmt: skip
        _pool_columns(zeros1(sums), False, column, indices, index_step, first, last, head, size, data_rows, data, width,
                      kind, divisor, output, past, segment)  # fmt: skip
        before = segment
        first = last
    if clear and stop == size and before + 1 < rows:
        output[(before + 1) * width :] = 0


@kernel
def pool(team, chunks, indices, index_step, ids, id_step, size, rows, data_rows, data, width, kind, sums,
         output, past, clear, bad):  # fmt: skip
    """Pool into `output`; returns the first bad position, in which case nothing is written, or -1.

    `sums` is any array of the type that sums are made in, `bad` has room for a position per chunk. Rows without a
    segment are zeroed if `clear`. If `past`, results are written past the caches (see `store_past`).
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk] = _first_bad(indices, index_step, ids, id_step, chunk_start(chunk, chunks, size),
                                chunk_start(chunk + 1, chunks, size), rows, data_rows)  # fmt: skip
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(team, heard)
        return wrong

    chunk = claim(team, 1)
    while chunk < chunks:
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        # As a constant, the step of the indices costs nothing in the innermost loop.
        if index_step == 1:
            _pool_chunk(first, stop, indices, 1, ids, id_step, size, rows, data_rows, data, width, kind, sums,
                        output, past, clear)  # fmt: skip
        else:
            _pool_chunk(first, stop, indices, 2, ids, id_step, size, rows, data_rows, data, width, kind, sums,
                        output, past, clear)  # fmt: skip
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks)
    leave(team, heard)
    return np.int64(-1)
