"""Kernels of the segment gradients: sum the entries of each row, in input order.

Both the gradients and their gradients are the same sum seen from two sides: rows gather from partners. What
differs is whose factor counts, that of the partner (a gradient: the segment scales) or that of the row (a
gradient's gradient: the row is the segment). `factor_shift` and `factor_mask` cut the position of the factor out of
an entry's word; a mask of 0 always finds the first factor, a lone 1.

Where each entry has a factor of its own, words hold positions of entries in place of partners, and `sources` tells
the partner of each position: (ids, step, number of rows of the values). It is None elsewhere, and what belongs to it
then leaves no trace in the compiled code.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.ids import bounded_id, read_id, write_id
from rowgrad._kernels.kinds import MEAN, SMALL, SUM
from rowgrad._kernels.lanes import clear_past, count, fill, keep_if, load, store, zeros1, zeros16, zeros64, zeros256
from rowgrad._kernels.raw import peek, prefetch
from rowgrad._kernels.team import chunk_start, claim, enter, finish, leave, wait

# Entries are summed in blocks that stay in the first-level cache while the columns are walked.
BLOCK = 512
# A block whose rows have at least this many entries on average is summed row by row, any other as one stream.
LONG_ROWS = 4
AHEAD = 8


@inline
def _scale(kind, size):
    """The factor of a segment of `size` entries, in float64; it is rounded to the type sums are made in."""
    return 1.0 / (np.float64(size) if kind == MEAN else np.sqrt(np.float64(size)))


@kernel
def scales(team, chunks, kind, counts, factors):
    """The factor of each segment."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        for segment in range(chunk_start(chunk, chunks, counts.size), chunk_start(chunk + 1, chunks, counts.size)):
            factors[segment] = _scale(kind, max(counts[segment], 1))
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)


@inline
def source_of(sources, partner):
    """The row of the values that the partner in a word stands for."""
    if sources is None:
        return partner
    ids, step, limit = sources
    return bounded_id(ids, step, partner, limit)


@inline
def _source_ahead(sources, partner):
    """The same for fetching a row before it is needed, which any row number will do for."""
    if sources is None:
        return partner
    return read_id(sources[0], sources[1], partner)


@inline
def _sum_rows(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift, factor_mask,
              compact, ordinal, output, sources):  # fmt: skip
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
            if sources is not None:  # they lead anywhere in a large table, where partners are mostly neighbours
                ahead = peek(words, min(i + AHEAD, last - 1)) & mask
                prefetch(values, _source_ahead(sources, ahead) * width + column)
            total = total + load(zeros, values, source_of(sources, word & mask) * width + column) * weight
        store(output, (ordinal if compact else row) * width + column, total)
        ordinal += 1
        first = end


@inline
def _sum_stream(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift, factor_mask,
                compact, ordinal, output, sources):  # fmt: skip
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
        ahead = _source_ahead(sources, peek(words, min(i + AHEAD, last - 1)) & mask)
        prefetch(values, ahead * width + column)
        source = source_of(sources, word & mask)
        total = keep_if(row == before, total) + load(zeros, values, source * width + column) * weight
        store(output, (ordinal if compact else row) * width + column, total)
        before = row


@inline
def _sum_columns(zeros, column, long, words, first, last, shift, mask, values, width, factors, factor_shift,
                 factor_mask, compact, ordinal, output, sources):  # fmt: skip
    """Sum as many columns from `column` on as blocks of the width of `zeros` cover; returns the next column."""
    while column + count(zeros) <= width:
        if long:
            _sum_rows(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift,
                      factor_mask, compact, ordinal, output, sources)  # fmt: skip
        else:
            _sum_stream(zeros, words, first, last, shift, mask, values, width, column, factors, factor_shift,
                        factor_mask, compact, ordinal, output, sources)  # fmt: skip
        column += count(zeros)
    return column


@inline
def sum_block(words, first, last, shift, mask, values, width, factors, factor_shift, factor_mask, compact,
              ordinal, output, unique, unique_step, sources=None):  # fmt: skip
    """Sum the entries from `first` to `last`, whole rows; returns how many rows these are."""
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
                          factor_shift, factor_mask, compact, ordinal, output, sources)  # fmt: skip
    column = _sum_columns(zeros64(factors), column, long, words, first, last, shift, mask, values, width, factors,
                          factor_shift, factor_mask, compact, ordinal, output, sources)  # fmt: skip
    column = _sum_columns(zeros16(factors), column, long, words, first, last, shift, mask, values, width, factors,
                          factor_shift, factor_mask, compact, ordinal, output, sources)  # fmt: skip
    _sum_columns(zeros1(factors), column, long, words, first, last, shift, mask, values, width, factors,
                 factor_shift, factor_mask, compact, ordinal, output, sources)  # fmt: skip
    return rows


@inline
def _clear_gaps(words, shift, first_row, stop_row, width, factors, output, past):
    """Zero the rows from `first_row` to `stop_row` that do not occur in `words`."""
    low, high = np.int64(0), np.int64(words.size)
    while low < high:
        middle = (low + high) // 2
        if peek(words, middle) >> shift < first_row:
            low = middle + 1
        else:
            high = middle
    row = first_row
    while row < stop_row:
        next_row = min(peek(words, low) >> shift, stop_row) if low < words.size else stop_row
        if past:
            clear_past(factors, output, row * width, next_row * width)
        else:
            output[row * width : next_row * width] = 0
        row = next_row + 1
        while low < words.size and peek(words, low) >> shift < row:
            low += 1


@kernel
def sum_rows(team, chunks, words, shift, row_starts, values, width, factors, factor_shift, factor_mask, compact,
             output, gaps, past, unique, unique_step, sources):  # fmt: skip
    """Sum the sorted `words` into `output`: row by row, or, where `compact`, only the rows that occur.

    `unique` receives the rows that occur, if compact. The rows below `gaps` that do not occur are zeroed, past the
    caches if `past` (see `store_past`).
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
            ordinal += sum_block(words, first, last, shift, mask, values, width, factors, factor_shift, factor_mask,
                                 compact, ordinal, output, unique, unique_step, sources)  # fmt: skip
            first = last
        finish(team, 0)
        chunk = claim(team, 0)
    # No row is in two chunks, and no gap is a row that occurs: whoever has nothing to sum can clear.
    if gaps > 0:
        chunk = claim(team, 1)
        while chunk < chunks:
            _clear_gaps(words, shift, chunk_start(chunk, chunks, gaps), chunk_start(chunk + 1, chunks, gaps), width,
                        factors, output, past)  # fmt: skip
            finish(team, 1)
            chunk = claim(team, 1)
        wait(team, 1, chunks)
    wait(team, 0, chunks)
    leave(team, heard)


DIGIT_BITS = 6
DIGITS = 1 << DIGIT_BITS


@inline
def sort_small(source, target, histogram, size, shift, row_limit):
    """Sort the first `size` words of `source` by row, stable; returns the one of the two that holds them then."""
    low = shift
    while (row_limit - 1) >> (low - shift) > 0:
        histogram[:DIGITS] = 0
        for i in range(size):
            histogram[(source[i] >> low) & (DIGITS - 1)] += 1
        position = 0
        for digit in range(DIGITS):
            here = histogram[digit]
            histogram[digit] = position
            position += here
        for i in range(size):
            digit = (source[i] >> low) & (DIGITS - 1)
            target[histogram[digit]] = source[i]
            histogram[digit] += 1
        source, target = target, source
        low += DIGIT_BITS
    return source


@kernel
def sum_small(rows, row_step, partners, partner_step, row_limit, partner_limit, kind, by_row, values, width, compact,
              output, unique, unique_step, work, factors):  # fmt: skip
    """All of a small call at once: check, count, sort and sum; returns the number of rows, or -1 - a bad position.

    `work` has `SMALL_WORK` elements, `factors` has `SMALL`, of the type sums are made in. If an entry is bad,
    nothing is written to `output`.
    """
    size = rows.size // row_step
    shift = np.int64(0)
    while partner_limit - 1 >> shift > 0:
        shift += 1
    mask = (np.int64(1) << shift) - 1
    counts = work[2 * SMALL : 3 * SMALL]
    histogram = work[3 * SMALL :]
    counts[:] = 0
    for i in range(size):
        row = read_id(rows, row_step, i)
        partner = read_id(partners, partner_step, i)
        if row < 0 or row >= row_limit or partner < 0 or partner >= partner_limit:
            return -1 - i
        work[i] = row << shift | partner
        if kind != SUM:
            counts[row if by_row else partner] += 1
    factors[0] = 1
    if kind != SUM:
        for segment in range(row_limit if by_row else partner_limit):
            factors[segment] = _scale(kind, max(counts[segment], 1))

    source = sort_small(work[:SMALL], work[SMALL : 2 * SMALL], histogram, size, shift, row_limit)
    factor_shift = shift if by_row else np.int64(0)
    factor_mask = np.int64(0) if kind == SUM else (np.int64(-1) if by_row else mask)
    return sum_block(source, 0, size, shift, mask, values, width, factors, factor_shift, factor_mask, compact, 0,
                     output, unique, unique_step)  # fmt: skip
