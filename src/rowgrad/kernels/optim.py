"""Kernels that change the rows of a table in place: gradient descent, with and without the gradient in memory."""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.ids import read_id
from rowgrad.kernels.lanes import count, fill, load, store, zeros1, zeros16, zeros64
from rowgrad.kernels.raw import peek, prefetch
from rowgrad.kernels.sparse_segment_grad import sum_block
from rowgrad.kernels.team import chunk_start, claim, enter, finish, leave, lowest, wait

# Entries whose sums are kept before their rows are changed: long enough to fetch the rows meanwhile.
BLOCK = 64
AHEAD = 16


@inline
def _descend_columns(zeros, column, table, row, grads, place, width, rate):
    """table[row] -= rate · grads[place], as many columns as blocks of the width of `zeros` cover."""
    while column + count(zeros) <= width:
        step = fill(zeros, rate) * load(zeros, grads, place * width + column)
        store(table, row * width + column, load(zeros, table, row * width + column) - step)
        column += count(zeros)
    return column


@inline
def _descend_row(table, row, grads, place, width, rate, sums):
    column = _descend_columns(zeros64(sums), 0, table, row, grads, place, width, rate)
    column = _descend_columns(zeros16(sums), column, table, row, grads, place, width, rate)
    _descend_columns(zeros1(sums), column, table, row, grads, place, width, rate)


@inline
def _fetch_row(table, row, width, line):
    for column in range(0, width, line):
        prefetch(table, row * width + column)


@kernel
def descend(team, chunks, rows, row_step, size, row_limit, grads, width, rate, sums, table, bad):
    """table[rows[u]] -= rate · grads[u]; returns the first position whose row is wrong or not ascending, or -1.

    `sums` is any array of the type that is computed in. If a row is wrong, nothing is written.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk] = -1
        first = chunk_start(chunk, chunks, size)
        before = read_id(rows, row_step, first - 1) if first > 0 else np.int64(-1)
        for u in range(first, chunk_start(chunk + 1, chunks, size)):
            row = read_id(rows, row_step, u)
            if row <= before or row >= row_limit:
                bad[chunk] = u
                break
            before = row
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(team, heard)
        return wrong

    line = 64 // table.itemsize
    chunk = claim(team, 1)
    while chunk < chunks:
        for u in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            _fetch_row(table, read_id(rows, row_step, min(u + AHEAD, size - 1)), width, line)
            _descend_row(table, read_id(rows, row_step, u), grads, u, width, rate, sums)
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks)
    leave(team, heard)
    return np.int64(-1)


@kernel
def descend_pooled(team, chunks, words, shift, values, width, factors, factor_shift, factor_mask, rate, table, totals,
                   names):  # fmt: skip
    """Sum the sorted `words` as `sum_rows` does, and change each row of the table by its sum at once.

    `totals` has room for the sums of a block per chunk, `names` for its rows, as the halves of 64-bit ids.
    """
    heard = enter(team)
    size = words.size
    mask = (np.int64(1) << shift) - 1
    line = 64 // table.itemsize
    chunk = claim(team, 0)
    while chunk < chunks:
        first = chunk_start(chunk, chunks, size)
        stop = chunk_start(chunk + 1, chunks, size)
        while 0 < first < stop and words[first] >> shift == words[first - 1] >> shift:
            first += 1  # this row began in an earlier chunk, and is summed there
        base = chunk * BLOCK
        while first < stop:
            last = min(first + BLOCK, stop)
            for i in range(first, last):
                _fetch_row(table, peek(words, i) >> shift, width, line)
            while last < size and words[last] >> shift == words[last - 1] >> shift:
                last += 1
            rows = sum_block(words, first, last, shift, mask, values, width, factors, factor_shift, factor_mask, True,
                             base, totals, names, 2)  # fmt: skip
            for place in range(base, base + rows):
                _descend_row(table, read_id(names, 2, place), totals, place, width, rate, factors)
            first = last
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)
