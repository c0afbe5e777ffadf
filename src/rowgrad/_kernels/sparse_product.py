"""The kernel of the product of a sparse matrix whose entries are ordered by row, and a dense one."""

import numpy as np

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.lanes import block_start, count, fill, load, store, zeros
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share


@kernel
def multiply(workers, chunks, indices, side, weights, values, rows, inner, width, lanes_for, output, bad):
    """All rows of the product in one pass; returns -1, or the position of an entry that is out of range or of order.

    `side` tells which column of the indices has rows; `bad` has room for a position per chunk. Each row is written
    once, by the chunk that it begins in, which also clears the rows without entries before it. If an entry is bad, the
    output is not whole.
    """
    seen = enter(workers)
    size = weights.size
    lanes = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        wrong = -1
        while 0 < first < stop and peek(indices, 2 * first + side) == peek(indices, 2 * first - 2 + side):
            first += 1  # this row began in an earlier chunk, and is summed there
        done = np.int64(-1) if first == 0 else peek(indices, 2 * first - 2 + side)
        if done >= rows or (first > 0 and done < 0):
            wrong = first - 1
        while first < stop and wrong < 0:
            row = peek(indices, 2 * first + side)
            if row <= done or row >= rows:
                wrong = first
                break
            output[(done + 1) * width : row * width] = 0
            last = first + 1
            while last < size and peek(indices, 2 * last + side) == row:
                last += 1
            for column in range(0, width, count(lanes)):
                here = block_start(lanes, column, width)
                total = lanes
                for entry in range(first, last):
                    source = peek(indices, 2 * entry + 1 - side)
                    if source < 0 or source >= inner:
                        wrong = entry
                        source = np.int64(0)
                    total = total + load(lanes, values, source * width + here) * fill(lanes, peek(weights, entry))
                store(output, row * width + here, total)
            done = row
            first = last
        if chunk == chunks - 1 and wrong < 0:
            output[(done + 1) * width : rows * width] = 0
        bad[chunk] = wrong
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found
