"""Kernels of the segment gradients: sum the entries of each row, in input order.

Both the gradients and their gradients are the same sum seen from two sides: rows gather from partners. What
differs is whose factor counts, that of the partner (a gradient: the segment scales) or that of the row (a
gradient's gradient: the row is the segment). `factor_shift` and `factor_mask` cut the position of the factor out of
an entry's word; a mask of 0 always finds the first factor, a single 1.

Where each entry has a factor of its own, words hold positions of entries in place of partners, and `sources` tells
the partner of each position: (ids, number of rows of the values). It is None elsewhere, and what belongs to it
then leaves no trace in the compiled code.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.kinds import MEAN, SMALL, SUM
from rowgrad._kernels.lanes import (
    block_start,
    clear_nontemporal,
    count,
    fill,
    keep_if,
    load,
    put_result,
    store,
    take_last,
    zeros,
)
from rowgrad._kernels.raw import peek, peek_bounded, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

# Entries are summed in blocks that stay in the first-level cache while the columns are walked.
BLOCK = 512
# A block whose rows have at least this many entries on average is summed row by row, any other as one stream.
LONG_ROWS = 4
AHEAD = 8


@inline
def scale_of(kind, size):
    """The factor of a segment of `size` entries, in float64; it is rounded to the type sums are made in."""
    return 1.0 / (np.float64(size) if kind == MEAN else np.sqrt(np.float64(size)))


@kernel
def scales(workers, chunks, kind, counts, factors):
    """The factor of each segment."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for segment in range(chunk_start(chunk, chunks, counts.size), chunk_start(chunk + 1, chunks, counts.size)):
            factors[segment] = scale_of(kind, max(counts[segment], 1))
    leave(workers, seen)


@inline
def _source(sources, partner):
    """The row of the values that the partner in a word stands for."""
    if sources is None:
        return partner
    return peek_bounded(sources[0], partner, sources[1])


@inline
def _source_ahead(sources, partner):
    """The same for fetching a row before it is needed, for which any row number will do."""
    if sources is None:
        return partner
    return peek(sources[0], partner)


@inline
def _sum_rows(lanes, words, first, last, shift, values, step, column, factors, factor_shift, factor_mask, compact,
              ordinal, output, width, sources, nontemporal):  # fmt: skip
    """Sum row by row: each result is written once, when its row is done."""
    mask = (np.int64(1) << shift) - 1
    while first < last:
        row = peek(words, first) >> shift
        total = lanes
        while first < last and peek(words, first) >> shift == row:
            word = peek(words, first)
            weight = fill(lanes, peek(factors, (word >> factor_shift) & factor_mask))
            if sources is not None:  # they lead anywhere in a large table, where partners are mostly neighbours
                ahead = peek(words, min(first + AHEAD, last - 1)) & mask
                prefetch(values, _source_ahead(sources, ahead) * step + column)
            total = total + load(lanes, values, _source(sources, word & mask) * step + column) * weight
            first += 1
        put_result(output, (ordinal if compact else row) * width + column, total, nontemporal)
        ordinal += 1


@inline
def _sum_stream(lanes, words, first, last, shift, values, step, column, factors, factor_shift, factor_mask, compact,
                ordinal, output, width, sources, nontemporal):  # fmt: skip
    """Sum as one stream: each partial sum is written, and the last one stays.

    Where rows have one or two entries, their ends cannot be predicted, and a branch costs more than a store.
    """
    mask = (np.int64(1) << shift) - 1
    total = lanes
    before = np.int64(-1)
    ordinal -= 1
    for i in range(first, last):
        word = peek(words, i)
        row = word >> shift
        ordinal += row != before
        weight = fill(lanes, peek(factors, (word >> factor_shift) & factor_mask))
        prefetch(values, _source_ahead(sources, peek(words, min(i + AHEAD, last - 1)) & mask) * step + column)
        source = _source(sources, word & mask)
        total = keep_if(row == before, total) + load(lanes, values, source * step + column) * weight
        put_result(output, (ordinal if compact else row) * width + column, total, nontemporal)
        before = row


@inline
def sum_block(lanes, words, first, last, shift, values, step, factors, factor_shift, factor_mask, compact, ordinal,
              output, width, unique, sources=None, nontemporal=False):  # fmt: skip
    """Sum the entries from `first` to `last`, whole rows; returns how many rows these are.

    From one partner to the next it is `step` elements of the values, mostly the width. `nontemporal` is for large
    results of rows that mostly have one entry, since a row may be written for each of its entries.
    """
    rows = 0
    before = np.int64(-1)
    for i in range(first, last):
        row = peek(words, i) >> shift
        if compact:
            poke(unique, ordinal + rows - (row == before), row)
        rows += row != before
        before = row
    for column in range(0, width, count(lanes)):
        here = block_start(lanes, column, width)
        if last - first >= LONG_ROWS * rows:
            _sum_rows(lanes, words, first, last, shift, values, step, here, factors, factor_shift, factor_mask,
                      compact, ordinal, output, width, sources, nontemporal)  # fmt: skip
        else:
            _sum_stream(lanes, words, first, last, shift, values, step, here, factors, factor_shift, factor_mask,
                        compact, ordinal, output, width, sources, nontemporal)  # fmt: skip
    return rows


@kernel
def sum_rows(workers, chunks, words, shift, row_starts, values, width, factors, factor_shift, factor_mask, compact,
             lanes_for, output, unique, sources, nontemporal):  # fmt: skip
    """Sum the sorted `words` into `output`: row by row, or, where `compact`, only the rows that occur.

    `unique` receives the rows that occur, if compact. `nontemporal` is as in `sum_block`.
    """
    seen = enter(workers)
    size = words.size
    lanes = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        while 0 < first < stop and peek(words, first) >> shift == peek(words, first - 1) >> shift:
            first += 1  # this row began in an earlier chunk, and is summed there
        ordinal = row_starts[chunk]
        while first < stop:
            last = min(first + BLOCK, stop)
            while last < size and peek(words, last) >> shift == peek(words, last - 1) >> shift:
                last += 1
            ordinal += sum_block(lanes, words, first, last, shift, values, width, factors, factor_shift, factor_mask,
                                 compact, ordinal, output, width, unique, sources, nontemporal)  # fmt: skip
            first = last
    leave(workers, seen)


@kernel
def clear_gaps(workers, chunks, words, shift, rows, width, lanes_for, output, nontemporal):
    """Zero the rows of `output` that do not occur in the sorted `words`, by non-temporal stores if `nontemporal`."""
    seen = enter(workers)
    size = words.size
    for chunk in share(workers, 0, chunks):
        row, stop = chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)
        low, high = np.int64(0), np.int64(size)
        while low < high:
            middle = (low + high) // 2
            if peek(words, middle) >> shift < row:
                low = middle + 1
            else:
                high = middle
        while row < stop:
            next_row = min(peek(words, low) >> shift, stop) if low < size else stop
            if nontemporal:
                clear_nontemporal(zeros(lanes_for), output, row * width, next_row * width)
            else:
                output[row * width : next_row * width] = 0
            row = next_row + 1
            while low < size and peek(words, low) >> shift < row:
                low += 1
    leave(workers, seen)


@inline
def _add_row(lanes, values, source, width, weight, output, target):
    """Add a row of `values`, scaled, to a row of `output`."""
    scale = fill(lanes, weight)
    for column in range(0, width, count(lanes)):
        here = block_start(lanes, column, width)
        before = load(lanes, output, target * width + here)
        total = before + load(lanes, values, source * width + here) * scale
        if here < column:  # the last block overlaps the one before, whose columns have been added
            total = take_last(total, before, width - column)
        store(output, target * width + here, total)


@kernel
def add_rows(rows, partners, row_limit, partner_limit, kind, by_row, values, width, lanes_for, output, counts,
             factors):  # fmt: skip
    """A dense result without sorting, by one thread: check, count, then add each entry to its row, in input order.

    For results that the caches hold, and that are stored in the type sums are made in. `counts` and `factors` have an
    element for each segment, or a single one if nothing is scaled. Returns -1, or the first bad position, in which case
    nothing is written to `output`.
    """
    counts[:] = 0
    for i in range(rows.size):
        row, partner = peek(rows, i), peek(partners, i)
        if row < 0 or row >= row_limit or partner < 0 or partner >= partner_limit:
            return np.int64(i)
        if kind != SUM:
            segment = row if by_row else partner
            poke(counts, segment, peek(counts, segment) + 1)
    for segment in range(counts.size):
        factors[segment] = 1.0 if kind == SUM else scale_of(kind, max(counts[segment], 1))
    output[:] = 0
    lanes = zeros(lanes_for)
    for i in range(rows.size):
        prefetch(output, peek(rows, min(i + AHEAD, rows.size - 1)) * width)
        row, partner = peek_bounded(rows, i, row_limit), peek_bounded(partners, i, partner_limit)
        segment = np.int64(0) if kind == SUM else (row if by_row else partner)
        _add_row(lanes, values, partner, width, peek(factors, segment), output, row)
    return np.int64(-1)


MOST_DIGIT_BITS = 11
MOST_DIGITS = 1 << MOST_DIGIT_BITS
SMALL_DIGIT_BITS = 6  # where counting more digits would take longer than another pass over the words


@inline
def passes_for(row_limit, most_bits):
    """How many passes `sort_by_row` makes; after an odd number, words are in its `target`."""
    passes = np.int64(0)
    while (row_limit - 1) >> (passes * most_bits) > 0:
        passes += 1
    return passes


@inline
def sort_by_row(source, target, histogram, size, shift, row_limit, most_bits):
    """Sort the first `size` words of `source` by row, stable, in as few passes as digits of `most_bits` allow.

    Returns the one of the two arrays that holds them then. `histogram` has an element for each digit.
    """
    row_bits, passes = passes_for(row_limit, 1), passes_for(row_limit, most_bits)
    for number in range(passes):
        low, high = number * row_bits // passes, (number + 1) * row_bits // passes
        low, mask = low + shift, (np.int64(1) << (high - low)) - 1
        for digit in range(mask + 1):
            poke(histogram, digit, 0)
        for i in range(size):
            digit = (peek(source, i) >> low) & mask
            poke(histogram, digit, peek(histogram, digit) + 1)
        position = np.int64(0)
        for digit in range(mask + 1):
            here = peek(histogram, digit)
            poke(histogram, digit, position)
            position += here
        for i in range(size):
            word = peek(source, i)
            digit = (word >> low) & mask
            place = peek(histogram, digit)
            poke(target, place, word)
            poke(histogram, digit, place + 1)
        source, target = target, source
    return source


@inline
def sort_small(source, target, histogram, size, shift, row_limit):
    """The same for a few hundred words, with digits of six bits."""
    return sort_by_row(source, target, histogram, size, shift, row_limit, SMALL_DIGIT_BITS)


@kernel
def sum_small(rows, partners, row_limit, partner_limit, kind, by_row, values, width, compact, lanes_for, output, unique,
              work, factors):  # fmt: skip
    """All of a small call at once: check, count, sort and sum; returns the number of rows, or -1 - a bad position.

    `work` has `SMALL_WORK` elements, `factors` has `SMALL`, of the type sums are made in. If an entry is bad,
    nothing is written to `output`.
    """
    size = rows.size
    shift = np.int64(0)
    while partner_limit - 1 >> shift > 0:
        shift += 1
    mask = (np.int64(1) << shift) - 1
    counts = work[2 * SMALL : 3 * SMALL]
    histogram = work[3 * SMALL :]
    counts[:] = 0
    for i in range(size):
        row = peek(rows, i)
        partner = peek(partners, i)
        if row < 0 or row >= row_limit or partner < 0 or partner >= partner_limit:
            return -1 - i
        work[i] = row << shift | partner
        if kind != SUM:
            counts[row if by_row else partner] += 1
    factors[0] = 1
    if kind != SUM:
        for segment in range(row_limit if by_row else partner_limit):
            factors[segment] = scale_of(kind, max(counts[segment], 1))

    source = sort_small(work[:SMALL], work[SMALL : 2 * SMALL], histogram, size, shift, row_limit)
    factor_shift = shift if by_row else np.int64(0)
    factor_mask = np.int64(0) if kind == SUM else (np.int64(-1) if by_row else mask)
    return sum_block(zeros(lanes_for), source, 0, size, shift, values, width, factors, factor_shift, factor_mask,
                     compact, 0, output, width, unique)  # fmt: skip
