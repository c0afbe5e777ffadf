"""Kernels that cross features: each feature of a row of one column with each of the others, by hash or as text.

All arrays but the features belong to the call. `firsts` and `counts` say, for each column and row, where its features
begin among those of all columns, and how many there are; the features of the last column change fastest.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.hashes import fingerprint_both
from rowgrad._kernels.raw import fill_range, peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

U = np.uint64
MOST = U((1 << 63) - 1)
DIGITS = 20  # of a number of 64 bits, with its sign


@inline
def _feature(features, firsts, counts, rows, column, row, place):
    """Feature number `place` of one column in one row, where the places of later columns have been divided away."""
    at = column * rows + row
    return peek(firsts, at) + place % peek(counts, at)


@inline
def _later(counts, rows, columns, column, row):
    """How many crosses the columns between this one and the last have."""
    product = np.int64(1)
    for other in range(column + 1, columns - 1):
        product *= peek(counts, other * rows + row)
    return product


@kernel
def cross_hashes(workers, chunks, rows, columns, features, firsts, counts, offsets, seed, seeded, buckets, output):
    """The hash of each cross; `seeded` ones begin with `seed`, others with the first feature."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            to, stop = peek(offsets, row), peek(offsets, row + 1)
            if to == stop:
                continue
            last = (columns - 1) * rows + row
            begin, inner = peek(firsts, last), peek(counts, last)
            for outer in range((stop - to) // inner):
                before, known = seed, seeded
                for column in range(columns - 1):
                    place = outer // _later(counts, rows, columns, column, row)
                    here = peek(features, _feature(features, firsts, counts, rows, column, row, place))
                    before = fingerprint_both(before, here) if known else here
                    known = True
                for place in range(inner):
                    here = peek(features, begin + place)
                    found = fingerprint_both(before, here) if known else here
                    poke(output, to, np.int64(found % buckets))
                    to += 1
    leave(workers, seen)


@kernel
def write_numbers(workers, chunks, numbers, output, begins, ends):
    """Each number in decimal, at the end of the `DIGITS` bytes that it has."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, numbers.size), chunk_start(chunk + 1, chunks, numbers.size)):
            number, at = peek(numbers, i), (i + 1) * DIGITS
            poke(ends, i, at)
            left = U(number) if number >= 0 else U(0) - U(number)
            while True:
                rest = left // U(10)
                at -= 1
                poke(output, at, U(48) + left - rest * U(10))
                left = rest
                if left == 0:
                    break
            if number < 0:
                at -= 1
                poke(output, at, U(45))
            poke(begins, i, at)
    leave(workers, seen)


@kernel
def joined_ends(workers, chunks, crosses, columns, places, begins, ends, between, offsets):
    """How long the text of each cross is: the strings, and `between` bytes between two of them."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for cross in range(chunk_start(chunk, chunks, crosses), chunk_start(chunk + 1, chunks, crosses)):
            length = between * (columns - 1)
            for column in range(columns):
                place = peek(places, cross * columns + column)
                length += peek(ends, place) - peek(begins, place)
            poke(offsets, cross + 1, length)
    leave(workers, seen)


@kernel
def cross_places(workers, chunks, rows, columns, firsts, counts, offsets, output):
    """The features of each cross: [crosses, columns]."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            for cross in range(peek(offsets, row), peek(offsets, row + 1)):
                place = cross - peek(offsets, row)
                for back in range(columns):
                    column = columns - 1 - back
                    at = column * rows + row
                    poke(output, cross * columns + column, peek(firsts, at) + place % peek(counts, at))
                    place //= peek(counts, at)
    leave(workers, seen)


@kernel
def joined_bytes(workers, chunks, crosses, columns, places, data, begins, ends, separator, offsets, output):
    """The strings of each cross with the separator between them; `offsets` were made from the same begins and ends."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for cross in range(chunk_start(chunk, chunks, crosses), chunk_start(chunk + 1, chunks, crosses)):
            to = peek(offsets, cross)
            for column in range(columns):
                if column > 0:
                    for at in range(separator.size):
                        output[to] = separator[at]
                        to += 1
                place = peek(places, cross * columns + column)
                for at in range(peek(begins, place), peek(ends, place)):
                    output[to] = data[at]
                    to += 1
    leave(workers, seen)


@kernel
def joined_points(workers, chunks, crosses, columns, places, data, begins, ends, separator, width, output, odd):
    """The same as `width` code points each, zeros behind them; tells whether all bytes are ASCII. One flag a chunk."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        bits = U(0)
        for cross in range(chunk_start(chunk, chunks, crosses), chunk_start(chunk + 1, chunks, crosses)):
            to = cross * width
            for column in range(columns):
                if column > 0:
                    for at in range(separator.size):
                        poke(output, to, peek(separator, at))
                        bits |= U(peek(separator, at))
                        to += 1
                place = peek(places, cross * columns + column)
                for at in range(peek(begins, place), peek(ends, place)):
                    poke(output, to, peek(data, at))
                    bits |= U(peek(data, at))
                    to += 1
            fill_range(output, to, (cross + 1) * width, 0)
        odd[chunk] = bits >= U(0x80)
    found = False
    for chunk in range(chunks):
        found |= odd[chunk] != 0
    leave(workers, seen)
    return not found


@kernel
def cross_indices(workers, chunks, rows, offsets, output):
    """The row of each cross and its place there."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            begin = peek(offsets, row)
            for cross in range(begin, peek(offsets, row + 1)):
                poke(output, 2 * cross, row)
                poke(output, 2 * cross + 1, cross - begin)
    leave(workers, seen)
