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
def copy_rows(workers, chunks, begins, limit, splits, values, width, output):
    """Copy row after row of words: row i comes from value number begins[i] on, to where splits[i] says.

    `limit` is the number of values; rows that reach past it are cut.
    """
    seen = enter(workers)
    rows = splits.size - 1
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            begin, to = peek(begins, row), peek(splits, row)
            count = min(peek(splits, row + 1) - to, limit - begin)
            for word in range(count * width):
                poke(output, to * width + word, peek(values, begin * width + word))
    leave(workers, seen)


@kernel
def range_sizes(workers, chunks, rows, starts, limits, steps, counts):
    """How many whole numbers each range has; -1 where they are more than can be counted. No step is 0."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            start, limit, step = peek(starts, row), peek(limits, row), peek(steps, row)
            if (step > 0 and start >= limit) or (step < 0 and start <= limit):
                counts[row] = 0
            else:  # the difference of two int64 may need 64 bits, which uint64 has
                span = np.uint64(limit) - np.uint64(start) if step > 0 else np.uint64(start) - np.uint64(limit)
                width = np.uint64(step) if step > 0 else np.uint64(0) - np.uint64(step)
                count = (span - np.uint64(1)) // max(width, np.uint64(1)) + np.uint64(1)
                counts[row] = -1 if count > np.uint64(1 << 62) else np.int64(count)
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
