"""Kernels that change the rows of a table in place, with and without the gradient in memory.

How a row is changed is in `formulas`.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.formulas import change_row, fetch_columns, fetch_state
from rowgrad._kernels.lanes import zeros
from rowgrad._kernels.raw import array_at, peek, peek_bounded, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share
from rowgrad._kernels.sparse_segment_grad import sum_block

# Entries whose sums are kept before their rows are changed: long enough to fetch the rows meanwhile.
BLOCK = 64
AHEAD = 16
# Tables of more bytes than this do not stay in the caches, so their rows are prefetched.
CACHED = 1 << 20
# State is prefetched too where fewer than one row in so many is changed; else the hardware prefetches it better.
SPARSE = 16
# How `change_pooled` sorts: so few by insertion, else by digits of at most so many bits.
FEW = 48
DIGIT_BITS = 11


def room_for_words(size: int) -> int:
    """How many words `change_pooled` needs to sort `size` entries."""
    return 2 * size + (0 if size <= FEW else 1 << DIGIT_BITS)


@inline
def _first_unordered(rows, begin, stop, row_limit):
    """The first position whose row is not in the table, or not above the one before; -1 if there is none."""
    before = peek(rows, begin - 1) if begin > 0 else np.int64(-1)
    for u in range(begin, stop):
        row = peek(rows, u)
        if row <= before or row >= row_limit:
            return np.int64(u)
        before = row
    return np.int64(-1)


@inline
def _numbers(given):
    return (peek(given, 0), peek(given, 1), peek(given, 2), peek(given, 3), peek(given, 4), peek(given, 5),
            peek(given, 6), peek(given, 7), peek(given, 8), peek(given, 9), peek(given, 10))  # fmt: skip


@kernel
def change(workers, chunks, rows, size, row_limit, grads, width, rule, given, lanes_for, stored, table, first, second,
           bad):  # fmt: skip
    """Change table[rows[u]] by grads[u]; returns the first position whose row is wrong or not ascending, or -1.

    Arrays may be given by their addresses; `given` has the numbers of the rule, `stored` is of the table's type. If a
    row is wrong, nothing is written.
    """
    seen = enter(workers)
    lanes, numbers = zeros(lanes_for), _numbers(given)
    rows, grads, table = array_at(rows, bad), array_at(grads, stored), array_at(table, stored)
    first, second = array_at(first, lanes_for), array_at(second, lanes_for)
    far = row_limit * width * stored.itemsize > CACHED
    sparse = size * SPARSE < row_limit
    for chunk in share(workers, 0, chunks):
        bad[chunk] = _first_unordered(
            rows, chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size), row_limit
        )
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for chunk in share(workers, 1, chunks):
        for u in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            if far:
                ahead = peek(rows, min(u + AHEAD, size - 1))
                fetch_columns(lanes, table, ahead, width)
                if sparse:
                    fetch_state(rule, lanes, ahead, width, first, second)
            row = peek_bounded(rows, u, row_limit)
            change_row(lanes, rule, numbers, table, row, grads, u, width, first, second)
    leave(workers, seen)
    return np.int64(-1)


@inline
def _sort_entries(ids, size, row_limit, words, info):
    """Words of the rows and positions of all entries, sorted by row; returns the first bad position, or -1.

    `info` receives which half of `words` holds them, and how many bits a position has.
    """
    shift = np.int64(0)
    while size - 1 >> shift > 0:
        shift += 1
    info[1], info[2] = 0, shift
    ordered, before = True, np.int64(-1)
    for i in range(size):
        row = peek(ids, i)
        if row < 0 or row >= row_limit:
            return np.int64(i)
        poke(words, i, row << shift | i)
        ordered &= before <= row
        before = row
    if not ordered and size <= FEW:
        for i in range(1, size):  # by insertion; no two words are the same
            word, to = peek(words, i), np.int64(i)
            while to > 0 and peek(words, to - 1) > word:
                poke(words, to, peek(words, to - 1))
                to -= 1
            poke(words, to, word)
    elif not ordered:
        bits = np.int64(0)
        while row_limit - 1 >> bits > 0:
            bits += 1
        passes = (bits + DIGIT_BITS - 1) // DIGIT_BITS
        digit_bits = (bits + passes - 1) // passes
        for number in range(passes):
            _sort_digit(words, (number & 1) * size, (1 - (number & 1)) * size, size, shift + number * digit_bits,
                        np.int64(1) << digit_bits, 2 * size)  # fmt: skip
        info[1] = passes & 1
    return np.int64(-1)


@inline
def _sort_digit(words, source, target, size, low, digits, histogram):
    """Sort the `size` words from `source` on by the digit whose lowest bit is `low`, to `target`; stable.

    `histogram` is where in `words` there is room for one.
    """
    for digit in range(digits):
        poke(words, histogram + digit, 0)
    for i in range(size):
        digit = (peek(words, source + i) >> low) & (digits - 1)
        poke(words, histogram + digit, peek(words, histogram + digit) + 1)
    position = np.int64(0)
    for digit in range(digits):
        here = peek(words, histogram + digit)
        poke(words, histogram + digit, position)
        position += here
    for i in range(size):
        word = peek(words, source + i)
        digit = (word >> low) & (digits - 1)
        poke(words, target + peek(words, histogram + digit), word)
        poke(words, histogram + digit, peek(words, histogram + digit) + 1)


@kernel
def change_pooled(workers, chunks, ids, size, row_limit, words, shift, values, width, factors, factor_shift,
                  factor_mask, rule, given, lanes_for, stored, table, first, second, totals, names, sources,
                  info):  # fmt: skip
    """Sum the sorted `words` as `sum_rows` does, and change each row of the table by its sum at once.

    With `ids`, `words` has room for two words an entry, and a histogram if they are more than `FEW`: the entries are
    sorted here, since calling several kernels takes longer than a small step, and a position that is out of range is
    returned before anything is written; else -1. Arrays of floats and ids may be given by their addresses. `totals` has
    room for the sums of a block per chunk, `names` for its rows. `sources` is as in `sum_block`.
    """
    seen = enter(workers)
    lanes, numbers = zeros(lanes_for), _numbers(given)
    values, table = array_at(values, stored), array_at(table, stored)
    first, second = array_at(first, lanes_for), array_at(second, lanes_for)
    far = row_limit * width * stored.itemsize > CACHED
    start = np.int64(0)
    if ids is not None:
        for _ in share(workers, 0, 1):
            info[0] = _sort_entries(array_at(ids, words), size, row_limit, words, info)
        if info[0] >= 0:
            leave(workers, seen)
            return info[0]
        start, shift = info[1] * size, info[2]

    end = start + size
    for chunk in share(workers, 1, chunks):
        begin = start + chunk_start(chunk, chunks, size)
        stop = start + chunk_start(chunk + 1, chunks, size)
        while start < begin < stop and peek(words, begin) >> shift == peek(words, begin - 1) >> shift:
            begin += 1  # this row began in an earlier chunk, and is summed there
        base = chunk * BLOCK
        while begin < stop:
            last = min(begin + BLOCK, stop)
            before = np.int64(-1)
            for i in range(begin, last):
                row = peek(words, i) >> shift
                if far and row != before:
                    # Not the state: as much again at once is more than the core can keep track of, and takes longer.
                    fetch_columns(lanes, table, row, width)
                before = row
            while last < end and peek(words, last) >> shift == peek(words, last - 1) >> shift:
                last += 1
            rows = sum_block(lanes, words, begin, last, shift, values, width, factors, factor_shift, factor_mask, True,
                             base, totals, width, names, sources)  # fmt: skip
            for place in range(base, base + rows):
                change_row(lanes, rule, numbers, table, peek(names, place), totals, place, width, first, second)
            begin = last
    leave(workers, seen)
    return np.int64(-1)


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
