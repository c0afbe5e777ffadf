"""Kernels of the segment gradients: sum the entries of each row, in input order.

Both the gradients and their gradients are the same sum seen from two sides: rows gather from partners. What
differs is whose factor counts, that of the partner (a gradient: the segment scales) or that of the row (a
gradient's gradient: the row is the segment).
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.ids import write_id
from rowgrad.kernels.kinds import MEAN, SUM
from rowgrad.kernels.lanes import count, fill, load, store, zeros1, zeros16, zeros64, zeros256
from rowgrad.kernels.team import chunk_start, claim, finish, wait


@inline
def _scale(kind, size):
    """The factor of a segment of `size` entries, in float64; it is rounded to the type sums are made in."""
    if kind == SUM:
        return 1.0
    return 1.0 / (np.float64(size) if kind == MEAN else np.sqrt(np.float64(size)))


@kernel
def scales(kind, counts, factors):
    """The factor of each segment."""
    for segment in range(counts.size):
        factors[segment] = _scale(kind, max(counts[segment], 1))


@inline
def _sum_entries(zeros, words, first, last, mask, values, width, column, factors, by_partner, factor):
    """Σ values[partner] · factor over the entries of one row, for the columns that `zeros` spans."""
    total = zeros
    weight = fill(zeros, factor)
    for i in range(first, last):
        partner = words[i] & mask
        if by_partner:
            weight = fill(zeros, factors[partner])
        total = total + load(zeros, values, partner * width + column) * weight
    return total


@inline
def _sum_columns(zeros, column, words, first, last, mask, values, width, factors, by_partner, factor, output, row):
    """Sum as many columns from `column` on as blocks of the width of `zeros` cover; returns the next column."""
    while column + count(zeros) <= width:
        total = _sum_entries(zeros, words, first, last, mask, values, width, column, factors, by_partner, factor)
        store(output, row * width + column, total)
        column += count(zeros)
    return column


@kernel
def sum_rows(team, chunks, words, shift, row_starts, values, width, factors, by_partner, row_kind, compact,
             output, unique, unique_step):  # fmt: skip
    """Sum the sorted `words` into `output`: row by row, or, where `compact`, only the rows that occur.

    Entries are scaled by the factor of their partner, or by that which `row_kind` gives a row of so many entries.
    `factors` tells by its type what sums are made in. `unique` receives the rows that occur, if compact.
    """
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
            row = words[first] >> shift
            last = first + 1
            while last < size and words[last] >> shift == row:
                last += 1
            factor = _scale(row_kind, last - first)
            place = row
            if compact:
                place = ordinal
                write_id(unique, unique_step, ordinal, row)
                ordinal += 1
            column = _sum_columns(zeros256(factors), 0, words, first, last, mask, values, width, factors,
                                  by_partner, factor, output, place)  # fmt: skip
            column = _sum_columns(zeros64(factors), column, words, first, last, mask, values, width, factors,
                                  by_partner, factor, output, place)  # fmt: skip
            column = _sum_columns(zeros16(factors), column, words, first, last, mask, values, width, factors,
                                  by_partner, factor, output, place)  # fmt: skip
            _sum_columns(zeros1(factors), column, words, first, last, mask, values, width, factors,
                         by_partner, factor, output, place)  # fmt: skip
            first = last
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
