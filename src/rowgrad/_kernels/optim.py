"""Kernels that change the rows of a table in place, with and without the gradient in memory.

Which optimizer it is, is a plain number: the choice is made once for a stretch of columns, in registers, so that one
compiled kernel serves all of them. Half and bfloat16 rows are computed in float32, as the state is, and rounded once.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.kinds import ADAGRAD, ADAM, DESCENT, MOMENTUM, NESTEROV, ROW_WISE_ADAGRAD
from rowgrad._kernels.lanes import (
    add_across,
    block_start,
    count,
    fill,
    first_of,
    load,
    root,
    store,
    take_last,
    zeros,
    zeros1,
    zeros16,
    zeros64,
)
from rowgrad._kernels.raw import peek, peek_bounded, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share
from rowgrad._kernels.sparse_segment_grad import sum_block

# Entries whose sums are kept before their rows are changed: long enough to fetch the rows meanwhile.
BLOCK = 64
AHEAD = 16


@inline
def _put(array, here, new, fresh):
    """Store the last `fresh` lanes; those before them have been changed already."""
    if fresh < count(new):
        store(array, here, take_last(new, load(new, array, here), fresh))
    else:
        store(array, here, new)


@inline
def _change_columns(lanes, kind, numbers, rate, table, row, grads, place, width, first, second):
    """Change a row, a block of columns at a time."""
    _, decay, shrink, one, rest_of_one, two, rest_of_two, eps = numbers
    for column in range(0, width, count(lanes)):
        start = block_start(lanes, column, width)
        fresh = count(lanes) - (column - start)
        here = row * width + start
        value = load(lanes, table, here)
        step = load(lanes, grads, place * width + start)
        if decay != 0:
            step = step + fill(lanes, decay) * value
        if kind == MOMENTUM or kind == NESTEROV:
            memory = fill(lanes, one) * load(lanes, first, here) + step
            _put(first, here, memory, fresh)
            step = step + fill(lanes, one) * memory if kind == NESTEROV else memory
        elif kind == ADAGRAD:
            squares = load(lanes, first, here) + step * step
            _put(first, here, squares, fresh)
            step = fill(lanes, rate) * step / (root(squares) + fill(lanes, eps))
        elif kind == ADAM:
            mean = fill(lanes, one) * load(lanes, first, here) + fill(lanes, rest_of_one) * step
            square = fill(lanes, two) * load(lanes, second, here) + fill(lanes, rest_of_two) * (step * step)
            _put(first, here, mean, fresh)
            _put(second, here, square, fresh)
            value = fill(lanes, shrink) * value
            step = fill(lanes, rate) * mean / (root(square) + fill(lanes, eps))
        if kind != ADAGRAD and kind != ADAM:
            step = fill(lanes, rate) * step
        _put(table, here, value - step, fresh)


@inline
def _square_columns(zeros, column, decay, table, row, grads, place, width):
    """Σ of the squares of a row's gradient, over the columns that blocks of the width of `zeros` cover."""
    squares = zeros
    while column + count(zeros) <= width:
        step = load(zeros, grads, place * width + column)
        if decay != 0:
            step = step + fill(zeros, decay) * load(zeros, table, row * width + column)
        squares = squares + step * step
        column += count(zeros)
    return column, np.float64(first_of(add_across(squares)))


@inline
def _change_row(lanes, kind, numbers, table, row, grads, place, width, first, second, sums):
    """Change one row of the table and of its state by row `place` of the gradients."""
    rate = numbers[0]
    if kind == ROW_WISE_ADAGRAD:
        column, squares = _square_columns(zeros64(sums), 0, numbers[1], table, row, grads, place, width)
        column, rest = _square_columns(zeros16(sums), column, numbers[1], table, row, grads, place, width)
        squares += rest
        column, rest = _square_columns(zeros1(sums), column, numbers[1], table, row, grads, place, width)
        squares += rest
        poke(first, row, np.float64(peek(first, row)) + squares / width)
        rate /= np.sqrt(np.float64(peek(first, row))) + numbers[7]
    _change_columns(lanes, kind, numbers, rate, table, row, grads, place, width, first, second)


@inline
def _fetch(array, row, width):
    line = 64 // array.itemsize
    for column in range(0, width, line):
        prefetch(array, row * width + column)
    prefetch(array, row * width + width - 1)


@inline
def _fetch_row(kind, table, row, width, first, second):
    """Have a row and its state fetched."""
    _fetch(table, row, width)
    if kind != DESCENT:
        _fetch(first, row, 1 if kind == ROW_WISE_ADAGRAD else width)
    if kind == ADAM:
        _fetch(second, row, width)


@kernel
def change(workers, chunks, rows, row_limit, grads, width, kind, numbers, lanes_for, table, first, second, bad):
    """Change table[rows[u]] by grads[u]; returns the first position whose row is wrong or not ascending, or -1.

    If a row is wrong, nothing is written.
    """
    seen = enter(workers)
    size, lanes = rows.size, zeros(lanes_for)
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
            _fetch_row(kind, table, peek(rows, min(u + AHEAD, size - 1)), width, first, second)
            row = peek_bounded(rows, u, row_limit)
            _change_row(lanes, kind, numbers, table, row, grads, u, width, first, second, lanes_for)
    leave(workers, seen)
    return np.int64(-1)


@kernel
def change_pooled(workers, chunks, words, shift, values, width, factors, factor_shift, factor_mask, kind, numbers,
                  lanes_for, table, first, second, totals, names, sources):  # fmt: skip
    """Sum the sorted `words` as `sum_rows` does, and change each row of the table by its sum at once.

    `totals` has room for the sums of a block per chunk, `names` for its rows. `sources` is as in `sum_block`.
    """
    seen = enter(workers)
    size, lanes = words.size, zeros(lanes_for)
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
                if row != before:
                    _fetch_row(kind, table, row, width, first, second)
                before = row
            while last < size and words[last] >> shift == words[last - 1] >> shift:
                last += 1
            rows = sum_block(lanes, words, begin, last, shift, values, width, factors, factor_shift, factor_mask, True,
                             base, totals, names, sources)  # fmt: skip
            for place in range(base, base + rows):
                _change_row(lanes, kind, numbers, table, peek(names, place), totals, place, width, first, second,
                            factors)  # fmt: skip
            begin = last
    leave(workers, seen)


@kernel
def change_others(workers, chunks, words, shift, row_limit, width, kind, numbers, lanes_for, nothing, table, first,
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
                _change_row(lanes, kind, numbers, table, row, nothing, 0, width, first, second, nothing)
            while occurs and low < words.size and peek(words, low) >> shift == row:
                low += 1
            row += 1
    leave(workers, seen)
