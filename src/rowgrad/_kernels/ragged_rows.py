"""Kernels over the rows of ragged tensors. Row splits, and ids that are used as addresses, belong to the call."""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import count, fill, load, store, zeros
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

# Rows of more values are counted by sorting all of them at once.
SHORT = 64


@kernel
def copy_splits(given, splits):
    """Copy row splits; tells how long the longest row is, or -1 if they do not begin with 0, or fall."""
    longest, before, falls = np.int64(0), np.int64(0), False
    for row in range(splits.size):
        here = peek(given, row)
        falls |= (here < before) | ((row == 0) & (here != 0))
        longest = max(longest, here - before)
        before = here
        poke(splits, row, here)
    return np.int64(-1) if falls else longest


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
def pick_rows(splits, picked, begins, ends):
    """Where each row that is picked begins, and where it ends among them; returns -1, or the first that is none.

    `splits` belong to the call; a row is bounded after it was read.
    """
    total = np.int64(0)
    poke(ends, 0, total)
    for i in range(begins.size):
        row = np.int64(peek(picked, i))
        if row < 0 or row >= splits.size - 1:
            return np.int64(i)
        begin = peek(splits, row)
        total += peek(splits, row + 1) - begin
        poke(begins, i, begin)
        poke(ends, i + 1, total)
    return np.int64(-1)


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
def range_splits(workers, chunks, rows, starts, limits, steps, most, splits, totals):
    """Where each range of whole numbers begins and ends; returns how many there are in all, or -1 - row.

    That row has more than `most`, or a step of 0. `totals` has room for two numbers per chunk.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        total, wrong = np.int64(0), np.int64(-1)
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            start, limit, step = peek(starts, row), peek(limits, row), peek(steps, row)
            count = np.uint64(0)
            if step > 0 and start < limit:  # the difference of two int64 may need 64 bits, which uint64 has
                span = np.uint64(limit) - np.uint64(start) - np.uint64(1)
                count = (span if step == 1 else span // np.uint64(step)) + np.uint64(1)
            elif step < 0 and start > limit:
                span = np.uint64(start) - np.uint64(limit) - np.uint64(1)
                count = span // (np.uint64(0) - np.uint64(step)) + np.uint64(1)
            is_empty = (step > 0 and start >= limit) or (step < 0 and start <= limit)
            if step == 0 or count > np.uint64(most) or (count == 0 and not is_empty):  # 2**64 wraps to 0
                wrong = np.int64(row) if wrong < 0 else wrong
                count = np.uint64(0)
            total += np.int64(count)
            poke(splits, row + 1, total)
        totals[chunk], totals[chunks + chunk] = total, wrong
    for _ in share(workers, 1, 1):
        poke(splits, 0, 0)
        totals[0] = add_up_totals(totals, chunks)
    whole = totals[0]
    for chunk in share(workers, 2, chunks):
        before = totals[chunk] if chunk > 0 else np.int64(0)
        if before > 0:
            for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
                poke(splits, row + 1, peek(splits, row + 1) + before)
    leave(workers, seen)
    return whole


@inline
def add_up_totals(totals, chunks):
    """Turn the totals of chunks, but for the first, into sums of those before; the sum of all, or -1 - a wrong row."""
    whole = np.int64(0)
    for chunk in range(chunks):
        if totals[chunks + chunk] >= 0:
            return -1 - totals[chunks + chunk]
        here = totals[chunk]
        totals[chunk] = whole
        whole += here
    return whole


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
def count_up(workers, chunks, splits, rows, starts, steps, lanes_for, numbers, output):
    """The same for whole numbers, a vector at a time; `numbers` are 0, 1, 2 and so on, as many as it has.

    A vector may reach into the rows that follow in the chunk, which are written later.
    """
    seen = enter(workers)
    counted = load(zeros(lanes_for), numbers, 0)
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)
        stop = peek(splits, last)
        for row in range(first, last):
            step, end = fill(counted, peek(steps, row)), peek(splits, row + 1)
            value, leap = fill(counted, peek(starts, row)) + step * counted, step * fill(counted, count(counted))
            for at in range(peek(splits, row), end, count(counted)):
                if at + count(counted) <= stop:
                    store(output, at, value)
                else:
                    for rest in range(at, end):
                        poke(output, rest, peek(starts, row) + (rest - peek(splits, row)) * peek(steps, row))
                value = value + leap
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
