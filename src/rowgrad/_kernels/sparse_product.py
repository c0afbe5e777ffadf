"""The kernel of the product of a sparse matrix whose entries are ordered by row, and a dense one."""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import block_start, count, fill, load, put_result, store_nontemporal, zeros
from rowgrad._kernels.raw import fill_range, known, peek
from rowgrad._kernels.sharing import chunk_start, enter, leave, share


@inline
def _times(lanes, indices, side, entry, weights, values, inner, width, here):
    """A block of columns of the row that an entry takes, times its weight; and whether there is no such row."""
    source = peek(indices, 2 * entry + 1 - known(side, 0))
    is_out = np.uint64(source) >= np.uint64(inner)
    source = np.int64(0) if is_out else source
    return load(lanes, values, source * width + here) * fill(lanes, peek(weights, entry)), is_out


@inline
def _clear(lanes, output, first, last, nontemporal):
    """Set the elements from `first` to `last` to 0; both are multiples of the width."""
    at = first
    if nontemporal:
        while at + count(lanes) <= last:
            store_nontemporal(output, at, lanes)
            at += count(lanes)
    fill_range(output, at, last, 0)


@kernel
def multiply(workers, chunks, indices, side, weights, values, rows, inner, width, wide, lanes_for, output, nontemporal,
             last_row, good):  # fmt: skip
    """All rows of the product in one pass; tells whether all entries are in range and in order.

    `side` tells which column of the indices has rows, None for the first; `wide` is None if one vector holds a row of
    the product. `last_row` is the row of the last entry, at most `rows` - 1. `good` has room for a flag per chunk. Each
    row is written once, by the chunk that it begins in, which also clears the rows without entries before it; those
    behind the last entry are cleared by all threads. If an entry is bad, the output is not whole.
    """
    seen = enter(workers)
    size = weights.size
    lanes = zeros(lanes_for)
    columns = count(lanes) if wide is None else width
    for chunk in share(workers, 0, 2 * chunks):
        if chunk >= chunks:  # a part of the rows behind the last entry
            begin = last_row + 1
            _clear(lanes, output, (begin + chunk_start(chunk - chunks, chunks, rows - begin)) * columns,
                   (begin + chunk_start(chunk - chunks + 1, chunks, rows - begin)) * columns, nontemporal)  # fmt: skip
            continue
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        wrong = False
        while 0 < first < stop and peek(indices, 2 * first + known(side, 0)) == peek(
            indices, 2 * first - 2 + known(side, 0)
        ):
            first += 1  # this row began in an earlier chunk, and is summed there
        done = np.int64(-1) if first == 0 else peek(indices, 2 * first - 2 + known(side, 0))
        if done >= rows or (first > 0 and done < 0):
            wrong = True
        while first < stop and not wrong:
            row = peek(indices, 2 * first + known(side, 0))
            if row <= done or row >= rows:
                wrong = True
                break
            if row > done + 1:
                _clear(lanes, output, (done + 1) * columns, row * columns, nontemporal)
            term, is_out = _times(lanes, indices, side, first, weights, values, inner, columns, 0)
            wrong |= is_out
            last, total = first + 1, lanes + term
            while last < size and peek(indices, 2 * last + known(side, 0)) == row:
                term, is_out = _times(lanes, indices, side, last, weights, values, inner, columns, 0)
                wrong |= is_out
                total = total + term
                last += 1
            put_result(output, row * columns, total, nontemporal)
            if wide is not None:
                for column in range(count(lanes), columns, count(lanes)):
                    here = block_start(lanes, column, columns)
                    total = lanes
                    for entry in range(first, last):
                        term, is_out = _times(lanes, indices, side, entry, weights, values, inner, columns, here)
                        wrong |= is_out
                        total = total + term
                    put_result(output, row * columns + here, total, nontemporal)
            done = row
            first = last
        # The caller's memory may have changed since the last row was read.
        good[chunk] = not wrong and (chunk < chunks - 1 or done == last_row)
    found = True
    for chunk in range(chunks):
        found &= good[chunk] != 0
    leave(workers, seen)
    return found
