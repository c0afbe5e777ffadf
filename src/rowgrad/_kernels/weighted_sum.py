"""Kernels of the weighted sums: small calls at once, bounds of ids, and the dot products of rows.

The sums of large calls are made by `sparse_segment_grad.sum_rows`, from words that hold the positions of entries.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.kinds import SMALL
from rowgrad._kernels.lanes import add_across, count, load, store, zeros, zeros1, zeros64
from rowgrad._kernels.raw import peek, peek_bounded, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share
from rowgrad._kernels.sparse_segment_grad import sort_small, sum_block

AHEAD = 8
LINE = 64  # bytes in a cache line


@inline
def _first_outside(ids, first, last, limit):
    """The first position whose id is not in [0, limit), or -1. (Two loops: LLVM vectorises the first.)"""
    wrong = False
    for i in range(first, last):
        here = peek(ids, i)
        wrong |= (here < 0) | (here >= limit)
    if wrong:
        for i in range(first, last):
            here = peek(ids, i)
            if here < 0 or here >= limit:
                return i
        return first  # corrected by another thread since; the call is refused all the same
    return -1


@kernel
def first_outside(workers, chunks, ids, limit, bad):
    """The first position of all whose id is not in [0, limit), or -1; `bad` has room for a position per chunk."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, ids.size), chunk_start(chunk + 1, chunks, ids.size)
        bad[chunk] = _first_outside(ids, first, last, limit)
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found


@kernel
def sum_small(rows, sources, row_limit, source_limit, weights, values, width, compact, lanes_for, output, unique, work):
    """All of a small call at once: check, sort and sum; returns the number of rows, or -1 - a bad position.

    `work` has `SMALL_WORK` elements; the weights are of the type sums are made in. If an entry is bad, nothing is
    written to `output`.
    """
    size = weights.size
    shift = np.int64(0)
    while size - 1 >> shift > 0:
        shift += 1
    mask = (np.int64(1) << shift) - 1
    for i in range(size):
        row = peek(rows, i)
        source = peek(sources, i)
        if row < 0 or row >= row_limit or source < 0 or source >= source_limit:
            return -1 - i
        work[i] = row << shift | i
    words = sort_small(work[:SMALL], work[SMALL : 2 * SMALL], work[3 * SMALL :], size, shift, row_limit)
    return sum_block(zeros(lanes_for), words, 0, size, shift, values, width, weights, np.int64(0), mask, compact, 0,
                     output, width, unique, (sources, source_limit))  # fmt: skip


@inline
def _dot(zeros, one, left, left_start, right, right_start, width):
    """Whole blocks of columns into the lanes of one vector, whose lanes are added in pairs; then the columns left over.

    Each product and each sum is rounded on its own, so the order is the same on every machine.
    """
    total = zeros
    column = 0
    while column + count(zeros) <= width:
        total = total + load(zeros, left, left_start + column) * load(zeros, right, right_start + column)
        column += count(zeros)
    rest = one
    while column < width:
        rest = rest + load(one, left, left_start + column) * load(one, right, right_start + column)
        column += 1
    return add_across(total) + rest


@inline
def _fetch(values, start, width):
    """Have a row fetched before it is needed."""
    for column in range(0, width, LINE // values.itemsize):
        prefetch(values, start + column)


@kernel
def dot_rows(workers, chunks, left, left_rows, left_limit, right, right_rows, right_limit, width, sums, dots, bad):
    """dots[i] = left[left_rows[i]] · right[right_rows[i]]; returns the first bad position, or -1.

    `sums` is any array of the type that sums are made in, `dots` is stored as the operator's output is. If a row is
    bad, nothing is written.
    """
    seen = enter(workers)
    size = left_rows.size
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        here = _first_outside(left_rows, first, last, left_limit)
        there = _first_outside(right_rows, first, last, right_limit)
        bad[chunk] = min(here, there) if here >= 0 and there >= 0 else max(here, there)
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for chunk in share(workers, 1, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            ahead = min(i + AHEAD, size - 1)
            _fetch(left, peek(left_rows, ahead) * width, width)
            _fetch(right, peek(right_rows, ahead) * width, width)
            dot = _dot(zeros64(sums), zeros1(sums), left, peek_bounded(left_rows, i, left_limit) * width,
                       right, peek_bounded(right_rows, i, right_limit) * width, width)  # fmt: skip
            store(dots, i, dot)
    leave(workers, seen)
    return np.int64(-1)
