"""A training step of many tables by one call: the gradients of rows are summed, and the rows changed by them.

A batch has far fewer ids than a table has rows, so nothing is sorted. Rows get slots, in the order in which they first
occur, and a slot holds the sum of its row's gradients in scratch that stays in the caches. A map tells the slot of each
row. When all entries of an item are through, each slot changes its row.

Each row is summed in the order of its entries by one thread, as `sparse_segment_grad` does it, so results are the same
to the bit. The entries of all tables are packed and checked first: if one is bad, no table is changed.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.described import FIRST, ROWS, SECOND, SIZE, START, STEPS, TABLE, WIDTH
from rowgrad._kernels.formulas import change_row, fetch_row
from rowgrad._kernels.kinds import LATE
from rowgrad._kernels.lanes import block_start, count, fetch, fill, keep_if, load, store, zeros
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.sharing import atomic_add, share
from rowgrad._kernels.tables import WORDS, WRONG
from rowgrad._kernels.tables_entries import PLACE_BITS, PLACES, item_at, list_items, pack, table_at
from rowgrad._kernels.team import (
    WITH_RANGES,
    ask_team,
    at,
    at_if,
    claim,
    has_waited,
    leave_team,
    on_team,
    ranges_for,
    room,
    thread_number,
)

NUMBERS = 11  # of an optimizer's formula
AHEAD = 12  # entries; what they need from a large table is fetched so long before
GRADS_AHEAD = 32  # the same for gradients, whose rows lie far apart
SLOTS, FORMULA = np.empty(0, np.int32), np.empty(0, np.float64)
CACHED = 1 << 20  # bytes of a table that is in the caches anyway


@inline
def _place(word, apart):
    """Where the gradient of an entry lies: those of some bags may be apart from the others, so many elements away."""
    first, size, shift = apart
    place = word & PLACES
    return place + (shift if np.uint64(place - first) < np.uint64(size) else np.int64(0))


@inline
def _sum_slots(lanes, wide, words, factors, start, size, grads, apart, width, span, slot_rows, slot_of, sums):
    """Sum the gradients of each row in a slot of its own; tells how many slots there are. They count from 1.

    `slot_of` has 0 for each row that has no slot yet. A slot has room for `span` elements, a multiple of the lanes.
    """
    slots = np.int64(0)
    for k in range(start, start + size):
        prefetch(slot_of, peek(words, min(k + AHEAD, start + size - 1)) >> PLACE_BITS)
        fetch(lanes, grads, _place(peek(words, min(k + GRADS_AHEAD, start + size - 1)), apart))
        word = peek(words, k)
        row, place = word >> PLACE_BITS, _place(word, apart)
        slot = np.int64(peek(slot_of, row))
        fresh = slot == 0
        if fresh:
            slots += 1
            slot = slots
            poke(slot_of, row, slot)
            poke(slot_rows, slot, row)
        if wide is None:
            step = load(lanes, grads, place)
            if factors is not None:
                step = step * fill(lanes, peek(factors, k))
            if fresh:
                store(sums, slot * count(lanes), lanes + step)
            else:
                store(sums, slot * count(lanes), load(lanes, sums, slot * count(lanes)) + step)
        else:
            for column in range(0, width, count(lanes)):
                step = load(lanes, grads, place + block_start(lanes, column, width))
                if factors is not None:
                    step = step * fill(lanes, peek(factors, k))
                here = slot * span + column
                store(sums, here, keep_if(not fresh, load(lanes, sums, here)) + step)
    return slots


@inline
def _change(lanes, rule, table, stored, sums, numbers, slot_rows, slot_of, slots, span, scratch):
    """Change the rows of all slots, and forget their slots."""
    width = peek(table, WIDTH)
    rows, first = at(stored, peek(table, TABLE)), at(sums, peek(table, FIRST))
    second = at(sums, peek(table, SECOND))
    formula = (peek(numbers, 0), peek(numbers, 1), peek(numbers, 2), peek(numbers, 3), peek(numbers, 4),
               peek(numbers, 5), peek(numbers, 6), peek(numbers, 7), peek(numbers, 8), peek(numbers, 9),
               peek(numbers, 10))  # fmt: skip
    is_far = peek(table, ROWS) * width * stored.itemsize > CACHED
    for slot in range(1, slots + 1):
        if is_far:
            fetch_row(lanes, rule, rows, peek(slot_rows, min(slot + AHEAD, slots)), width, first, second)
        poke(slot_of, np.int64(peek(slot_rows, slot)), 0)
        gradient = at(sums, scratch + slot * span * sums.itemsize)
        if span != width:  # the last block of columns begins earlier than it lies
            store(gradient, width - count(lanes), load(lanes, gradient, span - count(lanes)))
        change_row(lanes, rule, formula, rows, peek(slot_rows, slot), gradient, 0, width, first, second)


@inline
def _step_share(run_parallel, counters, ranges, items, number_of, parts, like, lanes_for, wide, scaled, weights_like,
                stored, rule, tables, features, numbers, ids, offsets, is_open, bags, weights, grads, stride, apart,
                words, factors, scratch, spread, slots_at, maps, map_size):  # fmt: skip
    """The part of a thread; it has scratch of its own from `scratch` on, `spread` bytes further for each thread."""
    shared, packed, lanes = at(WORDS, counters), at(WORDS, words), zeros(lanes_for)
    entry_factors = at_if(scaled, lanes_for, factors)
    entry_weights = at_if(weights_like, weights_like, weights)
    who = thread_number(run_parallel)
    mine, slot_of = scratch + who * spread, at(SLOTS, maps + who * map_size)
    for number in share((shared, shared), 0, number_of * parts):
        if pack(item_at(items, number), table_at(tables, number // parts), features, at(like, ids), at(like, offsets),
                is_open, bags, stride, packed, entry_factors, entry_weights):  # fmt: skip
            atomic_add(shared, WRONG, 1)
    if peek(shared, WRONG) == 0:
        number = claim(shared, who, ranges, number_of * parts)
        while number >= 0:
            item, table = item_at(items, number), table_at(tables, number // parts)
            slot_rows, width = at(SLOTS, mine + slots_at), peek(table, WIDTH)
            span = (width + count(lanes) - 1) // count(lanes) * count(lanes)
            slots = _sum_slots(lanes, wide, packed, entry_factors, peek(item, START), peek(item, SIZE),
                               at(stored, grads), apart, width, span, slot_rows, slot_of,
                               at(lanes_for, mine))  # fmt: skip
            _change(lanes, rule, table, stored, lanes_for, at(FORMULA, numbers + 8 * NUMBERS * (number // parts)),
                    slot_rows, slot_of, slots, span, mine)  # fmt: skip
            if number % parts == 0 and peek(table, STEPS) != 0:
                steps = at(WORDS, peek(table, STEPS))
                poke(steps, 0, peek(steps, 0) + 1)
            number = claim(shared, who, ranges, number_of * parts)
    leave_team(shared)


@kernel
def step(run_parallel, threads, number_of, parts, like, lanes_for, wide, scaled, weights_like, stored, rule, tables,
         features, numbers, ids, size, offsets, is_open, bags, per, weights, grads, stride, apart, items, words,
         factors, scratch, spread, slots_at, maps, map_size):  # fmt: skip
    """Change the rows of `number_of` tables by the gradients of their pooled rows; gives what `tables.pool` gives.

    If an id or an offset is bad, nothing is changed. A table has at most `per` entries. `maps` are zeros, a number for
    each row and thread, and are zeros again at the end. Elements of the gradient may be elsewhere than the others:
    `apart` tells from which one on, how many, and how much further.
    """
    counters = room(WITH_RANGES)
    list_items(items, tables, number_of, parts, at(like, ids), at(like, offsets), is_open, bags, size, per)
    shared = at(WORDS, counters)
    ask_team(shared)
    on_team(run_parallel, threads, _step_share,
            (run_parallel, counters, ranges_for(threads, number_of * parts), items, number_of, parts, like, lanes_for,
             wide, scaled, weights_like, stored, rule, tables, features, numbers, ids, offsets, is_open, bags, weights,
             grads, stride, apart, words, factors, scratch, spread, slots_at, maps, map_size))  # fmt: skip
    wrong = peek(shared, WRONG)
    return wrong if wrong != 0 or not has_waited(shared) else np.int64(LATE)
