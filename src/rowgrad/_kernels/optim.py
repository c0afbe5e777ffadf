"""Kernels that change the rows of a table in place, with and without the gradient in memory.

How a row is changed is in `formulas`.
"""

import numpy as np

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.formulas import change_row, fetch_row
from rowgrad._kernels.lanes import zeros
from rowgrad._kernels.raw import peek, peek_bounded
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share
from rowgrad._kernels.sparse_segment_grad import sum_block

# Entries whose sums are kept before their rows are changed: long enough to fetch the rows meanwhile.
BLOCK = 64
AHEAD = 16
# Tables of more bytes than this are not in the caches when they are needed, and their rows are fetched beforehand.
CACHED = 1 << 20


@kernel
def change(workers, chunks, rows, row_limit, grads, width, rule, numbers, lanes_for, table, first, second, bad):
    """Change table[rows[u]] by grads[u]; returns the first position whose row is wrong or not ascending, or -1.

    If a row is wrong, nothing is written.
    """
    seen = enter(workers)
    size, lanes = rows.size, zeros(lanes_for)
    far = table.size * table.itemsize > CACHED
    for chunk in share(workers, 0, chunks):
        bad[chunk] = -1
        begin = chunk_start(chunk, chunks, size)
        before = peek(rows, begin - 1) if begin > 0 else np.int64(-1)
        for u in range(begin, chunk_start(chunk + 1, chunks, size)):
            row = peek(rows, u)
            if row <= before or row >= row_limit:
                bad[chunk] = u
                break
            before = row
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for chunk in share(workers, 1, chunks):
        for u in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            if far:
                fetch_row(lanes, rule, table, peek(rows, min(u + AHEAD, size - 1)), width, first, second)
            row = peek_bounded(rows, u, row_limit)
            change_row(lanes, rule, numbers, table, row, grads, u, width, first, second)
    leave(workers, seen)
    return np.int64(-1)


@kernel
def change_pooled(workers, chunks, words, shift, values, width, factors, factor_shift, factor_mask, rule, numbers,
                  lanes_for, table, first, second, totals, names, sources):  # fmt: skip
    """Sum the sorted `words` as `sum_rows` does, and change each row of the table by its sum at once.

    `totals` has room for the sums of a block per chunk, `names` for its rows. `sources` is as in `sum_block`.
    """
    seen = enter(workers)
    size, lanes = words.size, zeros(lanes_for)
    far = table.size * table.itemsize > CACHED
    for chunk in share(workers, 0, chunks):
        begin = chunk_start(chunk, chunks, size)
        stop = chunk_start(chunk + 1, chunks, size)
        while 0 < begin < stop and words[begin] >> shift == words[begin - 1] >> shift:
            begin += 1  # this row began in an earlier chunk, and is summed there
        base = chunk * BLOCK
        while begin < stop:
            last = min(begin + BLOCK, stop)
            before = np.int64(-1)
            for i in range(begin, last):
                row = peek(words, i) >> shift
                if far and row != before:
                    fetch_row(lanes, rule, table, row, width, first, second)
                before = row
            while last < size and words[last] >> shift == words[last - 1] >> shift:
                last += 1
            rows = sum_block(lanes, words, begin, last, shift, values, width, factors, factor_shift, factor_mask, True,
                             base, totals, names, sources)  # fmt: skip
            for place in range(base, base + rows):
                change_row(lanes, rule, numbers, table, peek(names, place), totals, place, width, first, second)
            begin = last
    leave(workers, seen)


@kernel
def change_others(workers, chunks, words, shift, row_limit, width, rule, numbers, lanes_for, nothing, table, first,
                  second):  # fmt: skip
    """Change the rows below `row_limit` that do not occur in the sorted `words`, whose gradient is 0.

    `nothing` is a row of zeros, of the type that is computed in.
    """
    seen = enter(workers)
    lanes = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        row = chunk_start(chunk, chunks, row_limit)
        stop = chunk_start(chunk + 1, chunks, row_limit)
        low, high = np.int64(0), np.int64(words.size)
        while low < high:
            middle = (low + high) // 2
            if peek(words, middle) >> shift < row:
                low = middle + 1
            else:
                high = middle
        while row < stop:
            occurs = low < words.size and peek(words, low) >> shift == row
            if not occurs:
                change_row(lanes, rule, numbers, table, row, nothing, 0, width, first, second)
            while occurs and low < words.size and peek(words, low) >> shift == row:
                low += 1
            row += 1
    leave(workers, seen)
