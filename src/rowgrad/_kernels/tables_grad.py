"""The backward pass of pooled look-ups in many tables, by one call: gradients are summed, and tables changed by them.

A batch has far fewer ids than a table has rows, so nothing is sorted. Rows get slots, in the order in which they first
occur, and a slot holds the sum of its row's gradients in scratch that stays in the caches. A small hash table tells
the slot of a row. When all ids of a table are through, each slot changes its row.

Each row is summed in the order of its ids by one thread, as `sparse_segment_grad` does it, so results are the same to
the bit. The ids of all tables are checked and packed first: if one is bad, no table is changed. From then on only what
was packed is used, not the ids of the caller, which may change.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.formulas import change_row, fetch_row
from rowgrad._kernels.lanes import block_start, count, fetch, fill, keep_if, load, store, zeros, zeros64
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.sharing import atomic_add, share
from rowgrad._kernels.sparse_segment_grad import DIGITS, scale_of, sort_small
from rowgrad._kernels.tables import COLUMN, FIELDS, KIND, WORDS, WRONG, offset_at
from rowgrad._kernels.team import COUNTERS, LATE, at, at_if, has_waited, leave_team, on_team, room

# Numbers that describe a table: where it and its state are, and which features look rows up in it.
TABLE_FIELDS = 8
TABLE, ROWS, WIDTH, STATE, OTHER_STATE, FEATURE, FEATURES, STEPS = range(8)
NUMBERS = 11  # of an optimizer's formula
ROOM = 8  # words behind those of each part, as bags are numbered eight entries at a time
AHEAD = 12  # entries; what they need from a large table is fetched so long before
GRADS_AHEAD = 32  # the same for gradients, whose rows lie far apart
SLOTS, FORMULA = np.empty(0, np.int32), np.empty(0, np.float64)
CACHED = 1 << 20  # bytes of a table that is in the caches anyway
HERE = COUNTERS - 2  # the counter of threads that have come


@inline
def _number_bags(words, factors, weights, start, feature, offsets, base, first, last, bags, stride):
    """Write where its gradient lies to the words of each entry, and its factor; tells whether an offset is bad."""
    lanes, column, kind = zeros64(words), peek(feature, COLUMN), peek(feature, KIND)
    begin = first
    for bag in range(bags):
        end = peek(offsets, base + bag + 1) if bag + 1 < bags else last
        if end < begin or end > last:
            return True
        i = begin
        while i < end:
            store(words, start + i - first, fill(lanes, bag * stride + column))
            i += count(lanes)
        if factors is not None and weights is None:
            factor = scale_of(kind, max(end - begin, 1))
            for i in range(begin, end):
                poke(factors, start + i - first, factor)
        begin = end
    if weights is not None:
        for i in range(first, last):
            poke(factors, start + i - first, peek(weights, i))
    return begin != last


@inline
def _add_rows(words, start, ids, first, last, rows):
    """Write the row of each entry to its word; tells whether an id is bad. (LLVM vectorises this loop.)"""
    wrong = False
    for i in range(first, last):
        row = np.uint64(peek(ids, i))
        wrong |= bool(row >= np.uint64(rows))
        poke(words, start + i - first, np.int64(min(row, np.uint64(rows - 1))) << 32 | peek(words, start + i - first))
    return wrong


@inline
def _keep_part(words, factors, start, size, part, parts):
    """Keep the entries whose rows belong to `part`, in their order; tells how many these are."""
    kept = np.int64(0)
    for k in range(start, start + size):
        word = peek(words, k)
        poke(words, start + kept, word)
        if factors is not None:
            poke(factors, start + kept, peek(factors, k))
        kept += (word >> 32) & (parts - 1) == part
    return kept


@inline
def _pack(table, features, part, parts, ids, offsets, is_open, bags, stride, words, factors, weights, start, first,
          last):  # fmt: skip
    """Pack those of a table's entries from `first` to `last` whose rows belong to `part`, to `words` from `start` on.

    It tells how many these are, or -1 if one is bad.
    """
    rows = peek(table, ROWS)
    wrong, begin = rows == 0 and first < last, first
    if wrong:
        rows = 1
    for number in range(peek(table, FEATURE), peek(table, FEATURE) + peek(table, FEATURES)):
        end = offset_at(offsets, (number + 1) * bags, is_open, bags, last)
        if end < begin or end > last:
            return np.int64(-1)
        wrong |= _number_bags(words, factors, weights, start + begin - first, at(WORDS, features + 8 * FIELDS * number),
                              offsets, number * bags, begin, end, bags, stride)  # fmt: skip
        begin = end
    wrong |= begin != last
    wrong |= _add_rows(words, start, ids, first, last, rows)
    if wrong:
        return np.int64(-1)
    return _keep_part(words, factors, start, last - first, part, parts) if parts > 1 else last - first


@inline
def _sum_slots(lanes, wide, words, factors, start, size, grads, width, span, slot_rows, slot_of, sums):
    """Sum the gradients of each row in a slot of its own; tells how many slots there are. They count from 1.

    `slot_of` has 0 for each row that has no slot yet. A slot has room for `span` elements, a multiple of the lanes.
    """
    slots = np.int64(0)
    for k in range(start, start + size):
        prefetch(slot_of, peek(words, min(k + AHEAD, start + size - 1)) >> 32)
        fetch(lanes, grads, peek(words, min(k + GRADS_AHEAD, start + size - 1)) & 0xFFFFFFFF)
        word = peek(words, k)
        row, place = word >> 32, word & 0xFFFFFFFF
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
    rows, first = at(stored, peek(table, TABLE)), at(sums, peek(table, STATE))
    second = at(sums, peek(table, OTHER_STATE))
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
def _write(lanes, table, stored, sums, slot_rows, slot_of, slots, span, scratch, words, others, histogram):
    """Write the sums of all slots in the order of their rows, and forget the slots."""
    width, rows = peek(table, WIDTH), at(WORDS, peek(table, STATE))
    output, totals = at(stored, peek(table, OTHER_STATE)), at(sums, scratch)
    for slot in range(1, slots + 1):
        row = np.int64(peek(slot_rows, slot))
        poke(slot_of, row, 0)
        poke(words, slot - 1, row << 32 | slot)
    ordered = sort_small(words, others, histogram, slots, 32, peek(table, ROWS))
    for i in range(slots):
        word = peek(ordered, i)
        poke(rows, i, word >> 32)
        place = (word & 0xFFFFFFFF) * span
        for column in range(0, width, count(lanes)):
            store(output, i * width + block_start(lanes, column, width), load(lanes, totals, place + column))


@inline
def _place(listed, item, parts):
    """The table of an item, and from where to where its entries are, and where their words begin."""
    number = item // parts
    first, last = peek(listed, 2 * number), peek(listed, 2 * number + 1)
    return number, first, last, parts * first + (item - number * parts) * (last - first) + item * ROOM


@inline
def _step_share(counters, items, parts, like, lanes_for, wide, scaled, weights_like, stored, rule, tables, features,
                numbers, ids, offsets, is_open, bags, weights, grads, stride, words, factors, lists, scratch, spread,
                slots_at, others_at, maps, map_size):  # fmt: skip
    """The part of a thread; it has scratch of its own from `scratch` on, `spread` bytes further for each thread."""
    shared, listed, packed, lanes = at(WORDS, counters), at(WORDS, lists), at(WORDS, words), zeros(lanes_for)
    entry_factors = at_if(scaled, lanes_for, factors)
    entry_weights = at_if(weights_like, weights_like, weights)
    who = atomic_add(shared, HERE, 1)
    mine, slot_of = scratch + who * spread, at(SLOTS, maps + who * map_size)
    for item in share((shared, shared), 0, items):
        number, first, last, start = _place(listed, item, parts)
        size = _pack(at(WORDS, tables + 8 * TABLE_FIELDS * number), features, item - number * parts, parts,
                     at(like, ids), at(like, offsets), is_open, bags, stride, packed, entry_factors, entry_weights,
                     start, first, last)  # fmt: skip
        poke(listed, 2 * items + item, size)
        if size < 0:
            atomic_add(shared, WRONG, 1)
    if peek(shared, WRONG) == 0:
        for item in share((shared, shared), 1, items):
            number, _, _, start = _place(listed, item, parts)
            table, slot_rows = at(WORDS, tables + 8 * TABLE_FIELDS * number), at(SLOTS, mine + slots_at)
            width = peek(table, WIDTH)
            span = (width + count(lanes) - 1) // count(lanes) * count(lanes)
            slots = _sum_slots(lanes, wide, packed, entry_factors, start, peek(listed, 2 * items + item),
                               at(stored, grads), width, span, slot_rows, slot_of, at(lanes_for, mine))  # fmt: skip
            if rule is None:
                _write(lanes, table, stored, lanes_for, slot_rows, slot_of, slots, span, mine,
                       at(WORDS, words + 8 * start), at(WORDS, mine + others_at), at(WORDS, room(DIGITS)))  # fmt: skip
                poke(listed, 2 * items + item, slots)
            else:
                _change(lanes, rule, table, stored, lanes_for, at(FORMULA, numbers + 8 * NUMBERS * number), slot_rows,
                        slot_of, slots, span, mine)  # fmt: skip
                if item == number * parts and peek(table, STEPS) != 0:
                    steps = at(WORDS, peek(table, STEPS))
                    poke(steps, 0, peek(steps, 0) + 1)
    leave_team(shared)


@inline
def _list_entries(listed, tables, number_of, offsets, is_open, bags, size, per):
    """Note from where to where the entries of each table are, at most `per`.

    Whatever the offsets are, no two tables share an entry. What is cut off here is found to be bad later.
    """
    before = np.int64(0)
    for number in range(number_of):
        table = at(WORDS, tables + 8 * TABLE_FIELDS * number)
        feature = peek(table, FEATURE)
        first = min(max(before, offset_at(offsets, feature * bags, is_open, bags, size)), size)
        end = offset_at(offsets, (feature + peek(table, FEATURES)) * bags, is_open, bags, size)
        before = min(max(first, end), first + per, size)
        poke(listed, 2 * number, first)
        poke(listed, 2 * number + 1, before)


@kernel
def step(run_parallel, threads, number_of, parts, like, lanes_for, wide, scaled, weights_like, stored, rule, tables,
         features, numbers, ids, size, offsets, is_open, bags, per, weights, grads, stride, words, factors, lists,
         scratch, spread, slots_at, others_at, maps, map_size):  # fmt: skip
    """Change the rows of `number_of` tables by the gradients of their pooled rows; gives what `tables.pool` gives.

    If an id or an offset is bad, nothing is changed. Without a `rule`, the gradients of the rows that occur are written
    instead: to where `tables` has the addresses of state, the rows in ascending order, and their gradients. `lists`
    tells then how many rows each table has. A table has at most `per` entries. `maps` are zeros, a number for each row
    and thread, and are zeros again at the end.
    """
    counters = room(COUNTERS)
    _list_entries(at(WORDS, lists), tables, number_of, at(like, offsets), is_open, bags, size, per)
    on_team(run_parallel, threads, _step_share,
            (counters, number_of * parts, parts, like, lanes_for, wide, scaled, weights_like, stored, rule, tables,
             features, numbers, ids, offsets, is_open, bags, weights, grads, stride, words, factors, lists, scratch,
             spread, slots_at, others_at, maps, map_size))  # fmt: skip
    shared = at(WORDS, counters)
    wrong = peek(shared, WRONG)
    return wrong if wrong != 0 or not has_waited(shared) else np.int64(LATE)
