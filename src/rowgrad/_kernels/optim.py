"""Kernels that change the rows of a table in place, with and without the gradient in memory.

Which optimizer it is, is a plain number: the choice is made once for a stretch of columns, in registers, so that one
compiled kernel serves all of them. Half and bfloat16 rows are computed in float32, as the state is, and rounded once.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.ids import bounded_id, read_id
from rowgrad._kernels.kinds import ADAGRAD, ADAM, DESCENT, MOMENTUM, NESTEROV, ROW_WISE_ADAGRAD
from rowgrad._kernels.lanes import add_across, count, fill, first_of, load, root, store, zeros1, zeros16, zeros64
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.sparse_segment_grad import sum_block
from rowgrad._kernels.team import chunk_start, claim, enter, finish, leave, lowest, wait

# Entries whose sums are kept before their rows are changed: long enough to fetch the rows meanwhile.
BLOCK = 64
AHEAD = 16


@inline
def _change_columns(zeros, column, kind, numbers, rate, table, row, grads, place, width, first, second):
    """Change as many columns from `column` on as blocks of the width of `zeros` cover; returns the next column."""
    _, decay, shrink, one, rest_of_one, two, rest_of_two, eps = numbers
    while column + count(zeros) <= width:
        here = row * width + column
        value = load(zeros, table, here)
        step = load(zeros, grads, place * width + column)
        if decay != 0:
            step = step + fill(zeros, decay) * value
        if kind == MOMENTUM or kind == NESTEROV:
            memory = fill(zeros, one) * load(zeros, first, here) + step
            store(first, here, memory)
            step = step + fill(zeros, one) * memory if kind == NESTEROV else memory
        elif kind == ADAGRAD:
            squares = load(zeros, first, here) + step * step
            store(first, here, squares)
            step = fill(zeros, rate) * step / (root(squares) + fill(zeros, eps))
        elif kind == ADAM:
            mean = fill(zeros, one) * load(zeros, first, here) + fill(zeros, rest_of_one) * step
            square = fill(zeros, two) * load(zeros, second, here) + fill(zeros, rest_of_two) * (step * step)
            store(first, here, mean)
            store(second, here, square)
            value = fill(zeros, shrink) * value
            step = fill(zeros, rate) * mean / (root(square) + fill(zeros, eps))
        if kind != ADAGRAD and kind != ADAM:
            step = fill(zeros, rate) * step
        store(table, here, value - step)
        column += count(zeros)
    return column


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
def _change_row(kind, numbers, table, row, grads, place, width, first, second, sums):
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
    column = _change_columns(zeros64(sums), 0, kind, numbers, rate, table, row, grads, place, width, first, second)
    column = _change_columns(zeros16(sums), column, kind, numbers, rate, table, row, grads, place, width, first, second)
    _change_columns(zeros1(sums), column, kind, numbers, rate, table, row, grads, place, width, first, second)


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
def change(team, chunks, rows, row_step, size, row_limit, grads, width, kind, numbers, sums, table, first, second,
           bad):  # fmt: skip
    """Change table[rows[u]] by grads[u]; returns the first position whose row is wrong or not ascending, or -1.

    `sums` is any array of the type that is computed in. If a row is wrong, nothing is written.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk] = -1
        begin = chunk_start(chunk, chunks, size)
        before = read_id(rows, row_step, begin - 1) if begin > 0 else np.int64(-1)
        for u in range(begin, chunk_start(chunk + 1, chunks, size)):
            row = read_id(rows, row_step, u)
            if row <= before or row >= row_limit:
                bad[chunk] = u
                break
            before = row
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(team, heard)
        return wrong

    chunk = claim(team, 1)
    while chunk < chunks:
        for u in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            _fetch_row(kind, table, read_id(rows, row_step, min(u + AHEAD, size - 1)), width, first, second)
            row = bounded_id(rows, row_step, u, row_limit)
            _change_row(kind, numbers, table, row, grads, u, width, first, second, sums)
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks)
    leave(team, heard)
    return np.int64(-1)


@kernel
def change_pooled(team, chunks, words, shift, values, width, factors, factor_shift, factor_mask, kind, numbers, table,
                  first, second, totals, names, sources):  # fmt: skip
    """Sum the sorted `words` as `sum_rows` does, and change each row of the table by its sum at once.

    `totals` has room for the sums of a block per chunk, `names` for its rows, as the halves of 64-bit ids. `sources`
    is as in `sum_block`.
    """
    heard = enter(team)
    size = words.size
    mask = (np.int64(1) << shift) - 1
    chunk = claim(team, 0)
    while chunk < chunks:
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
            rows = sum_block(words, begin, last, shift, mask, values, width, factors, factor_shift, factor_mask, True,
                             base, totals, names, 2, sources)  # fmt: skip
            for place in range(base, base + rows):
                _change_row(kind, numbers, table, read_id(names, 2, place), totals, place, width, first, second,
                            factors)  # fmt: skip
            begin = last
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)


@kernel
def change_others(team, chunks, words, shift, row_limit, width, kind, numbers, nothing, table, first, second):
    """Change the rows below `row_limit` that do not occur in the sorted `words`, whose gradient is 0.

    `nothing` is a row of zeros, of the type that is computed in.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
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
                _change_row(kind, numbers, table, row, nothing, 0, width, first, second, nothing)
            while occurs and low < words.size and peek(words, low) >> shift == row:
                low += 1
            row += 1
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)
