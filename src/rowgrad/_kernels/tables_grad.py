"""The gradients of many tables by one call: the rows that occur, in ascending order, and the gradient of each.

The entries of a table are sorted by row, and each row is summed in the order of its entries, straight to its place in
the result. These are the sums of `sparse_segment_grad`, the same to the bit.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.described import BEGIN, END, FIRST, ROWS, SECOND, SIZE, START, UNIQUE, WIDTH
from rowgrad._kernels.kinds import LATE
from rowgrad._kernels.lanes import zeros
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import atomic_add, share
from rowgrad._kernels.sparse_segment_grad import (
    BLOCK,
    MOST_DIGIT_BITS,
    MOST_DIGITS,
    SMALL_DIGIT_BITS,
    passes_for,
    sort_by_row,
    sum_block,
)  # fmt: skip
from rowgrad._kernels.tables import WORDS, WRONG
from rowgrad._kernels.tables_entries import PLACE_BITS, PLACES, item_at, list_items, pack, table_at
from rowgrad._kernels.team import COUNTERS, ask_team, at, at_if, has_waited, leave_team, on_team, room

FEW = 1024  # entries, which are sorted by small digits


@inline
def digit_bits(size):
    """The most bits of a digit that so many entries are sorted by."""
    return SMALL_DIGIT_BITS if size < FEW else MOST_DIGIT_BITS


@inline
def _order(item, rows, words, others, places, histogram):
    """Sort the words of an item by row, and note how many different rows there are.

    Where each entry has a factor of its own, `places` gets to know where its gradient lies, and its word, which of the
    item's entries it is.
    """
    start, size = peek(item, START), peek(item, SIZE)
    mine = at(WORDS, words + 8 * start)
    if places is not None:
        for k in range(size):
            word = peek(mine, k)
            poke(places, start + k, word & PLACES)
            poke(mine, k, word & ~PLACES | k)
    ordered = sort_by_row(mine, at(WORDS, others + 8 * start), histogram, size, PLACE_BITS, rows, digit_bits(size))
    before, unique = np.int64(-1), np.int64(0)
    for k in range(size):
        row = peek(ordered, k) >> PLACE_BITS
        unique += row != before
        before = row
    poke(item, UNIQUE, unique)


@inline
def _sum(lanes, scaled, item, table, ordinal, stored, sums, words, others, grads, factors, places, limit):
    """Sum the rows of an item to their places in the result, which begin at `ordinal`."""
    start, size, width = peek(item, START), peek(item, SIZE), peek(table, WIDTH)
    is_odd = passes_for(peek(table, ROWS), digit_bits(size)) % 2
    ordered = at(WORDS, (others if is_odd else words) + 8 * start)
    rows, output = at(WORDS, peek(table, FIRST)), at(stored, peek(table, SECOND))
    first = np.int64(0)
    while first < size:
        last = min(first + BLOCK, size)
        while last < size and peek(ordered, last) >> PLACE_BITS == peek(ordered, last - 1) >> PLACE_BITS:
            last += 1
        if scaled is None:
            ordinal += sum_block(lanes, ordered, first, last, PLACE_BITS, grads, 1, at(sums, factors), 0, np.int64(0),
                                 True, ordinal, output, width, rows)  # fmt: skip
        else:
            ordinal += sum_block(lanes, ordered, first, last, PLACE_BITS, grads, 1,
                                 at(sums, factors + sums.itemsize * start), 0, np.int64(PLACES), True, ordinal, output,
                                 width, rows, (at(WORDS, places + 8 * start), limit))  # fmt: skip
        first = last


@inline
def _gradients_share(counters, items, number_of, parts, like, lanes_for, scaled, weights_like, stored, tables, features,
                     ids, offsets, is_open, bags, weights, grads, stride, words, others, factors,
                     places):  # fmt: skip
    """The part of a thread."""
    shared, histogram, lanes = at(WORDS, counters), at(WORDS, room(MOST_DIGITS)), zeros(lanes_for)
    entry_factors, entry_places = at_if(scaled, lanes_for, factors), at_if(scaled, WORDS, places)
    entry_weights = at_if(weights_like, weights_like, weights)
    for number in share((shared, shared), 0, number_of * parts):
        item, table = item_at(items, number), table_at(tables, number // parts)
        if pack(item, table, features, at(like, ids), at(like, offsets), is_open, bags, stride, at(WORDS, words),
                entry_factors, entry_weights):  # fmt: skip
            atomic_add(shared, WRONG, 1)
        else:
            _order(item, peek(table, ROWS), words, others, entry_places, histogram)
    if peek(shared, WRONG) == 0:
        for number in share((shared, shared), 1, number_of * parts):
            item, ordinal, kept = item_at(items, number), np.int64(0), np.int64(0)
            for other in range(number - number % parts, number - number % parts + parts):
                kept += peek(item_at(items, other), SIZE)
                if other < number:
                    ordinal += peek(item_at(items, other), UNIQUE)
            if kept != peek(item, END) - peek(item, BEGIN):  # another thread has changed ids while each part read them
                atomic_add(shared, WRONG, 1)
            else:
                _sum(lanes, scaled, item, table_at(tables, number // parts), ordinal, stored, lanes_for, words, others,
                     at(stored, grads), factors, places, bags * stride)  # fmt: skip
    leave_team(shared)


@kernel
def gradients(run_parallel, threads, number_of, parts, like, lanes_for, scaled, weights_like, stored, tables, features,
              ids, size, offsets, is_open, bags, per, weights, grads, stride, items, words, others, factors,
              places):  # fmt: skip
    """Write the gradient of each table to the addresses in its description; gives what `tables.pool` gives.

    `items` tell then how many rows each part of a table has. Unless entries have factors of their own, `factors` is the
    address of a 1. If an id or an offset is bad, nothing is written.
    """
    counters = room(COUNTERS)
    list_items(items, tables, number_of, parts, at(like, ids), at(like, offsets), is_open, bags, size, per)
    shared = at(WORDS, counters)
    ask_team(shared)
    on_team(run_parallel, threads, _gradients_share,
            (counters, items, number_of, parts, like, lanes_for, scaled, weights_like, stored, tables, features, ids,
             offsets, is_open, bags, weights, grads, stride, words, others, factors, places))  # fmt: skip
    wrong = peek(shared, WRONG)
    return wrong if wrong != 0 or not has_waited(shared) else np.int64(LATE)
