"""Kernels of the segment gradients: sum the entries of each row, in input order.

Both the gradients and their gradients are the same sum seen from two sides: rows gather from partners. What
differs is whose factor counts, that of the partner (a gradient: the segment scales) or that of the row (a
gradient's gradient: the row is the segment). `factor_shift` and `factor_mask` cut the position of the factor out of
an entry's word; a mask of 0 always finds the first factor, a lone 1.
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.ids import write_id
from rowgrad.kernels.kinds import MEAN
from rowgrad.kernels.lanes import count, fill, keep_if, load, store, zeros1, zeros16, zeros64, zeros256
from rowgrad.kernels.raw import peek, prefetch
from rowgrad.kernels.team import chunk_start, claim, enter, finish, leave, wait

# Entries are summed in blocks that stay in the first-level cache while the columns are walked.
BLOCK = 512
# A block whose rows have at least this many entries on average is summed row by row, any other as one stream.
LONG_ROWS = 4
AHEAD = 8


@kernel
def scales(team, chunks, kind, counts, factors):
    """The factor of each segment: computed in float64, then rounded to the type sums are made in."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        for segment in range(chunk_start(chunk, chunks, counts.size), chunk_start(chunk + 1, chunks, counts.size)):
            size = np.float64(max(counts[segment], 1))
            factors[segment] = 1.0 / (size if kind == MEAN else np.sqrt(size))
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)


@inline
def _sum_rows(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift, factor_mask,
              compact, ordinal, output):  # fmt: skip
    """Sum row by row: each result is written once, when its row is done."""
    while first < last:
        row = peek(words, first) >> shift
        end = first + 1
        while end < last and peek(words, end) >> shift == row:
            end += 1
        total = zeros
        for i in range(first, end):
            word = peek(words, i)
            weight = fill(zeros, peek(factors, (word >> factor_shift) & factor_mask))
            total = total + load(zeros, values, (word & mask) * width + column) * weight
        store(output, (ordinal if compact else row) * width + column, total)
        ordinal += 1
        first = end


@inline
def _sum_stream(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift, factor_mask,
                compact, ordinal, output):  # fmt: skip
    """Sum as one stream: each partial sum is written, and the last one stays.

    Where rows have one or two entries, their ends cannot be predicted, and a branch costs more than a store.
    """
    total = zeros
    before = np.int64(-1)
    ordinal -= 1
    for i in range(first, last):
        word = peek(words, i)
        row = word >> shift
        ordinal += row != before
        weight = fill(zeros, peek(factors, (word >> factor_shift) & factor_mask))
        prefetch(values, (peek(words, min(i + AHEAD, last - 1)) & mask) * width + column)
        total = keep_if(row == before, total) + load(zeros, values, (word & mask) * width + column) * weight
        store(output, (ordinal if compact else row) * width + column, total)
        before = row


@inline
def _sum_columns(zeros, column, long, words, first, last, shift, mask, values, width, factors, factor_shift,
                 factor_mask, compact, ordinal, output):  # fmt: skip
    """Sum as many columns from `column` on as blocks of the width of `zeros` cover; returns the next column."""
    while column + count(zeros) <= width:
        if long:
            _sum_rows(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift,
                      factor_mask, compact, ordinal, output)  # fmt: skip
        else:
            _sum_stream(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift,
                        factor_mask, compact, ordinal, output)  # fmt: skip
        column += count(zeros)
    return column


@kernel
def sum_rows(team, chunks, words, shift, row_starts, values, width, factors, factor_shift, factor_mask, compact,
             output, unique, unique_step):  # fmt: skip
    """Sum the sorted `words` into `output`: row by row, or, where `compact`, only the rows that occur.

    `unique` receives the rows that occur, if compact. Rows that do not occur are left as they are.
    """
    heard = enter(team)
    size = words.size
    mask = (np.int64(1) << shift) - 1
    chunk = claim(team, 0)
    while chunk < chunks:
        first = chunk_start(chunk, chunks, size)
        stop = chunk_start(chunk + 1, chunks, size)
        while 0 < first < stop and words[first] >> shift == words[first - 1] >> shift:
            first += 1  # this row began in an earlier chunk, and is summed there
        ordinal = row_starts[chunk]
        while first < stop:
            last = min(first + BLOCK, stop)
            while last < size and words[last] >> shift == words[last - 1] >> shift:
                last += 1
            rows = 0
            before = np.int64(-1)
            for i in range(first, last):
                row = peek(words, i) >> shift
                if compact:
                    write_id(unique, unique_step, ordinal + rows - (row == before), row)
                rows += row != before
                before = row
            long = last - first >= LONG_ROWS * rows
            column = _sum_columns(zeros256(factors), 0, long, words, first, last, shift, mask, values, width, factors,
                                  factor_shift, factor_mask, compact, ordinal, output)  # fmt: skip
            column = _sum_columns(zeros64(factors), column, long, words, first, last, shift, mask, values, width,
                                  factors, factor_shift, factor_mask, compact, ordinal, output)  # fmt: skip
            column = _sum_columns(zeros16(factors), column, long, words, first, last, shift, mask, values, width,
                                  factors, factor_shift, factor_mask, compact, ordinal, output)  # fmt: skip
            _sum_columns(zeros1(factors), column, long, words, first, last, shift, mask, values, width, factors,
                         factor_shift, factor_mask, compact, ordinal, output)  # fmt: skip
            ordinal += rows
            first = last
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)
