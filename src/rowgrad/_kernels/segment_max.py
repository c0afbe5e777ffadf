"""Kernels of the largest rows of segments, and of the way back: each result remembers the row that it came from.

Values are compared as the type they are summed in, which holds every half and bfloat16 exactly. Results are found
column by column, in blocks of columns that fill vector registers.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.kinds import SMALL
from rowgrad._kernels.lanes import Lanes, block_start, count, fill, load, store, zeros, zeros1
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share
from rowgrad._kernels.sparse_segment_grad import sort_small

AHEAD = 16
LINE = 64  # bytes in a cache line


@intrinsic
def zero_ids(typingctx: Any, lanes: Any) -> Any:
    """As many lanes as `lanes` has, for ids."""
    ids = Lanes(types.int64, lanes.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(ids), None)

    return ids(lanes), codegen


@intrinsic
def choose_larger(typingctx: Any, value: Any, best: Any, ours: Any, theirs: Any) -> Any:
    """`ours` in each lane where `value` is larger than `best`, else `theirs`; a NaN is larger than all but a NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.fcmp_unordered("ugt", args[0], args[1])
        is_number = builder.fcmp_ordered("ord", args[1], args[1])
        return builder.select(builder.and_(above, is_number), args[2], args[3])

    return ours(value, best, ours, theirs), codegen


@inline
def _largest(lanes, words, first, last, shift, mask, data, width, output, chosen):
    """The largest of a segment, the entries from `first` to `last`, a block of columns at a time."""
    segment = peek(words, first) >> shift
    for column in range(0, width, count(lanes)):
        here = block_start(lanes, column, width)
        row = peek(words, first) & mask
        best = load(lanes, data, row * width + here)
        best_row = fill(zero_ids(lanes), row)
        for i in range(first + 1, last):
            row = peek(words, i) & mask
            value = load(lanes, data, row * width + here)
            best_row = choose_larger(value, best, fill(zero_ids(lanes), row), best_row)
            best = choose_larger(value, best, value, best)
        store(output, segment * width + here, best)
        store(chosen, segment * width + here, best_row)


@inline
def _fetch(data, words, mask, first, last, width):
    """Have the rows of the entries that come next fetched."""
    for i in range(first, last):
        start = (peek(words, i) & mask) * width
        for column in range(0, width, LINE // data.itemsize):
            prefetch(data, start + column)


@inline
def _fill_gap(first_row, last_row, width, output, chosen):
    """Segments without entries are 0, and came from nowhere."""
    output[first_row * width : last_row * width] = 0
    chosen[first_row * width : last_row * width] = -1


@inline
def _max_chunk(lanes, words, size, first, stop, shift, segments, data, width, output, chosen):
    """The segments that begin between `first` and `stop`, and the gaps before them."""
    mask = (np.int64(1) << shift) - 1
    while 0 < first < stop and words[first] >> shift == words[first - 1] >> shift:
        first += 1  # this segment began in an earlier chunk, and is done there
    before = words[first - 1] >> shift if first > 0 else np.int64(-1)
    while first < stop:
        segment = words[first] >> shift
        last = first + 1
        while last < size and words[last] >> shift == segment:
            last += 1
        _fetch(data, words, mask, last, min(last + AHEAD, size), width)
        _fill_gap(before + 1, segment, width, output, chosen)
        _largest(lanes, words, first, last, shift, mask, data, width, output, chosen)
        before = segment
        first = last
    if stop == size:
        _fill_gap((words[size - 1] >> shift) + 1, segments, width, output, chosen)


@kernel
def max_rows(workers, chunks, words, shift, segments, data, width, lanes_for, output, chosen):
    """The largest of each segment, from words sorted by segment."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        size = words.size
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        _max_chunk(zeros(lanes_for), words, size, first, stop, shift, segments, data, width, output, chosen)
    leave(workers, seen)


@kernel
def max_small(segment_ids, indices, segments, data_rows, data, width, lanes_for, output, chosen, work):
    """All of a small call at once: check, sort and compare; returns a bad position, or -1.

    `work` has `SMALL_WORK` elements. If an entry is bad, nothing is written to the results.
    """
    size = indices.size
    shift = np.int64(0)
    while data_rows - 1 >> shift > 0:
        shift += 1
    for i in range(size):
        segment, row = peek(segment_ids, i), peek(indices, i)
        if segment < 0 or segment >= segments or row < 0 or row >= data_rows:
            return i
        work[i] = segment << shift | row
    words = sort_small(work[:SMALL], work[SMALL : 2 * SMALL], work[3 * SMALL :], size, shift, segments)
    _max_chunk(zeros(lanes_for), words, size, 0, size, shift, segments, data, width, output, chosen)
    return -1


# The way back: every element of the gradient goes to its column of the row that was chosen there.


@inline
def _add_chunk(lanes, words, size, first, stop, shift, grad, width, ordinal, compact, totals, base, output, unique):
    """Sum the rows that begin between `first` and `stop`, each in `totals` from `base` on; returns the next ordinal."""
    mask = (np.int64(1) << shift) - 1
    one = zeros1(totals)
    while 0 < first < stop and words[first] >> shift == words[first - 1] >> shift:
        first += 1  # this row began in an earlier chunk, and is summed there
    while first < stop:
        row = words[first] >> shift
        totals[base : base + width] = 0
        while first < size and words[first] >> shift == row:
            element = peek(words, first) & mask
            place = base + element % width
            store(totals, place, load(one, totals, place) + load(one, grad, element))
            first += 1
        start = (ordinal if compact else row) * width
        for column in range(0, width, count(lanes)):
            here = block_start(lanes, column, width)
            store(output, start + here, load(lanes, totals, base + here))
        if compact:
            poke(unique, ordinal, row)
        ordinal += 1
    return ordinal


@kernel
def add_rows(workers, chunks, words, shift, row_starts, grad, width, compact, lanes_for, totals, output, unique):
    """Add each element to its column of its row, in the order of elements; words hold the row, then the element.

    `totals` has room for a row per chunk, in the type sums are made in. Rows that do not occur are not written.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        size = words.size
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        _add_chunk(zeros(lanes_for), words, size, first, stop, shift, grad, width, row_starts[chunk], compact, totals,
                   chunk * width, output, unique)  # fmt: skip
    leave(workers, seen)


@kernel
def add_small(chosen, rows, grad, width, compact, lanes_for, totals, output, unique, work):
    """All of a small call at once: check, sort and add; returns the number of rows, or -1 - a bad position."""
    shift = np.int64(0)
    while chosen.size - 1 >> shift > 0:
        shift += 1
    size = 0
    for element in range(chosen.size):
        row = chosen[element]
        if row < -1 or row >= rows:
            return -1 - element
        if row >= 0:
            work[size] = row << shift | element
            size += 1
    words = sort_small(work[:SMALL], work[SMALL : 2 * SMALL], work[3 * SMALL :], size, shift, rows)
    return _add_chunk(zeros(lanes_for), words, size, 0, size, shift, grad, width, 0, compact, totals, 0, output, unique)


@kernel
def take(workers, chunks, chosen, rows, grad, width, output, bad):
    """output[s, c] = grad[chosen[s, c], c], or 0 where nothing was chosen; returns the first bad position, or -1.

    Values are copied as words of their size. If a row is bad, nothing is written.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        bad[chunk] = -1
        for i in range(chunk_start(chunk, chunks, chosen.size), chunk_start(chunk + 1, chunks, chosen.size)):
            if chosen[i] < -1 or chosen[i] >= rows:
                bad[chunk] = i
                break
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for chunk in share(workers, 1, chunks):
        first = chunk_start(chunk, chunks, chosen.size)
        column = first % width if width > 0 else 0
        for i in range(first, chunk_start(chunk + 1, chunks, chosen.size)):
            row = peek(chosen, i)
            if 0 <= row < rows:  # it may have changed since it was checked
                poke(output, i, peek(grad, row * width + column))
            else:
                poke(output, i, 0)
            column = column + 1 if column + 1 < width else 0
    leave(workers, seen)
    return np.int64(-1)
