"""The kernel that counts the values of a sparse tensor, row by row.

The caller's arrays may change meanwhile: rows are kept in memory of the call, values are bounded after they were read.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import copy, copy_nontemporal, zeros64
from rowgrad._kernels.raw import fill_range, known, peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

# What may be wrong, as bits: rows fall, a value is negative, an index is out of range.
FALLS, NEGATIVE, OUTSIDE = 1, 2, 4


@inline
def _count(value, low, high, place, weights, i, binary, output):
    """Count entry `i` at `place` plus its value, if the value is from `low` to `high`."""
    if low <= value < high:
        at = place + value
        if binary:
            output[at] = 1
        elif weights.size > 0:
            output[at] += weights[i]
        else:
            output[at] += 1


@kernel
def count_bins(workers, chunks, indices, rank, limits, values, bins, weights, binary, numbers, rows, block, buffers,
               output, bad):  # fmt: skip
    """How often each value from 0 to `bins` occurs in each row, or the sums of its weights; returns what is wrong.

    Nothing is written if an index is out of range. `rank` is None for two dimensions; a vector has one row, of which
    each thread counts some of the values. Else each thread has some of the rows, and clears `block` of them at a time,
    then counts while they are in the cache: in the output, or, if there are `buffers`, with room for a block per chunk,
    in these, from which they are copied by non-temporal stores. `numbers` has room for the row of each entry.
    """
    seen = enter(workers)
    size = values.size
    for chunk in share(workers, 0, chunks):
        wrong, falls, negative, before = False, False, False, np.int64(0)
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            is_out = False
            for axis in range(known(rank, 2)):
                here = peek(indices, i * known(rank, 2) + axis)
                is_out |= (here < 0) | (here >= limits[axis])
            row = np.int64(0) if is_out or known(rank, 2) == 1 else peek(indices, i * known(rank, 2))
            row = min(max(row, 0), rows - 1)  # it was read again
            wrong |= is_out
            falls |= row < before
            negative |= peek(values, i) < 0
            before = row
            poke(numbers, i, row)
        bad[chunk] = OUTSIDE * np.int64(wrong) + NEGATIVE * np.int64(negative) + FALLS * np.int64(falls)
    for _ in share(workers, 1, 1):
        found = np.int64(0)
        for chunk in range(chunks):
            found |= bad[chunk]
            first = chunk_start(chunk, chunks, size)
            if 0 < first < size and peek(numbers, first) < peek(numbers, first - 1):
                found |= FALLS
        bad[0] = found
    found = bad[0]
    for strip in share(workers, 2, chunks if found < OUTSIDE else 0):
        if known(rank, 2) == 1:
            low, high = chunk_start(strip, chunks, bins), chunk_start(strip + 1, chunks, bins)
            fill_range(output, low, high, 0)
            for i in range(size):
                _count(peek(values, i), low, high, 0, weights, i, binary, output)
            continue
        blocks = (rows + block - 1) // block
        row, stop = (
            chunk_start(strip, chunks, blocks) * block,
            min(chunk_start(strip + 1, chunks, blocks) * block, rows),
        )
        if found & FALLS:
            fill_range(output, row * bins, stop * bins, 0)
            for i in range(size):
                if row <= peek(numbers, i) < stop:
                    _count(peek(values, i), 0, bins, peek(numbers, i) * bins, weights, i, binary, output)
            continue
        entry, last = np.int64(0), size
        while entry < last:  # the first entry of these rows
            middle = (entry + last) // 2
            if peek(numbers, middle) < row:
                entry = middle + 1
            else:
                last = middle
        while row < stop:
            until = min(row + block, stop)
            at, length = row * bins, (until - row) * bins
            if buffers.size > 0:
                buffer = strip * block * bins
                copy(zeros64(output), None, 0, buffers, buffer, length)
                while entry < size and peek(numbers, entry) < until:
                    place = buffer + (peek(numbers, entry) - row) * bins
                    _count(peek(values, entry), 0, bins, place, weights, entry, binary, buffers)
                    entry += 1
                copy_nontemporal(zeros64(output), buffers, buffer, output, at, length)
            else:
                fill_range(output, at, at + length, 0)
                while entry < size and peek(numbers, entry) < until:
                    _count(peek(values, entry), 0, bins, peek(numbers, entry) * bins, weights, entry, binary, output)
                    entry += 1
            row = until
    leave(workers, seen)
    return found
