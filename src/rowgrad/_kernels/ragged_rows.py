"""Kernels over the rows of ragged tensors. Row splits, and ids that are used as addresses, belong to the call."""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

# Rows of more values are counted by sorting all of them at once.
SHORT = 64


@kernel
def index_pairs(workers, chunks, splits, rows, output):
    """The row of each value and its place there."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            begin = peek(splits, row)
            for at in range(begin, peek(splits, row + 1)):
                poke(output, 2 * at, row)
                poke(output, 2 * at + 1, at - begin)
    leave(workers, seen)


@kernel
def fill_rows(workers, chunks, splits, filled, columns, values, width, default, output):
    """Copy the first `columns` values of each row of words to a dense row, and the default behind them.

    Rows from number `filled` on have no values.
    """
    seen = enter(workers)
    rows = output.size // max(columns * width, 1)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            begin = peek(splits, row) if row < filled else np.int64(0)
            count = min(peek(splits, row + 1) - begin, columns) if row < filled else np.int64(0)
            to = row * columns * width
            for word in range(count * width):
                poke(output, to + word, peek(values, begin * width + word))
            for place in range(count, columns):
                for word in range(width):
                    poke(output, to + place * width + word, peek(default, word))
    leave(workers, seen)


@kernel
def add_up(workers, chunks, splits, rows, starts, steps, output):
    """Each row from its start on, step by step; the splits have been made for these rows."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            value, step = starts[row], steps[row]
            for at in range(peek(splits, row), peek(splits, row + 1)):
                output[at] = value
                value += step
    leave(workers, seen)


@kernel
def count_bins(workers, chunks, splits, rows, values, bins, weights, binary, output):
    """Add up the weights of each value of each row, or 1 where there are none; the output is zero."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            for at in range(peek(splits, row), peek(splits, row + 1)):
                value = peek(values, at)
                if 0 <= value < bins:
                    place = row * bins + value
                    if binary:
                        output[place] = 1
                    elif weights.size > 0:
                        output[place] += weights[at]
                    else:
                        output[place] += 1
    leave(workers, seen)


@inline
def _sorted_row(values, begin, end, order):
    """The positions of a row's values, ordered by value, equal ones as they come."""
    for at in range(begin, end):
        value, to = peek(values, at), at
        while to > begin and peek(values, peek(order, to - 1)) > value:
            poke(order, to, peek(order, to - 1))
            to -= 1
        poke(order, to, at)


@kernel
def count_distinct(workers, chunks, splits, rows, values, limit, order, counts):
    """Order the values of each row, and count the different ones below `limit`."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            begin, end = peek(splits, row), peek(splits, row + 1)
            _sorted_row(values, begin, end, order)
            found, before = np.int64(0), np.int64(-1)
            for at in range(begin, end):
                value = peek(values, peek(order, at))
                if value >= limit:
                    break
                found += value != before
                before = value
            poke(counts, row, found)
    leave(workers, seen)


@kernel
def write_counts(workers, chunks, splits, rows, values, limit, order, offsets, weights, binary, indices, output):
    """The different values of each row and how often they occur, or the sums of their weights."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            to, before = peek(offsets, row) - 1, np.int64(-1)
            for at in range(peek(splits, row), peek(splits, row + 1)):
                position = peek(order, at)
                value = peek(values, position)
                if value >= limit:
                    break
                if value != before:
                    to += 1
                    poke(indices, 2 * to, row)
                    poke(indices, 2 * to + 1, value)
                    output[to] = 0
                    before = value
                if binary:
                    output[to] = 1
                elif weights.size > 0:
                    output[to] += weights[position]
                else:
                    output[to] += 1
    leave(workers, seen)
