"""The gradient of one table, which most layers have: what `tables_grad` does, without descriptions of tables and items.

A step of a small batch pays for every argument and every line of code. The sums are the same, in the same order.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import zeros
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import LINE, atomic_add, share
from rowgrad._kernels.sparse_segment_grad import BLOCK, MOST_DIGITS, passes_for, scale_of, sort_by_row, sum_block
from rowgrad._kernels.tables import WORDS, WRONG, offset_at
from rowgrad._kernels.tables_entries import PLACE_BITS, PLACES, SAMPLES, keep_rows, sample
from rowgrad._kernels.tables_grad import digit_bits
from rowgrad._kernels.team import COUNTERS, ask_team, at, at_if, has_waited, leave_team, on_team, room

OWN_ENTRIES = 64  # entries, which a thread sorts in memory of its own
OWN = 2 * OWN_ENTRIES  # words of it
VERY_FEW = 16  # entries, which are sorted by insertion
FACTOR_BYTES = 8  # at least those of the type that sums are made in
MOST_PARTS = SAMPLES  # ranges of rows that threads share
# What is noted of a part: its first row, how many entries and different rows it has, whether sorting has left its words
# where the others were, and how many rows it and all parts before it have.
LOW, ENTRIES, UNIQUE, IS_ODD, TOTAL = range(5)
NOTES = 2 * LINE  # words of them, if there is one part


@inline
def _pack_single(ids, size, offsets, is_open, bags, rows, words, factors):
    """Check and pack bags of one id each; tells whether these are other bags, and whether an id or offset is bad."""
    others = wrong = False
    for bag in range(bags):
        row = np.int64(peek(ids, bag))
        wrong |= bool(np.uint64(row) >= np.uint64(rows))
        others |= bool(peek(offsets, bag) != bag)
        poke(words, bag, row << PLACE_BITS | bag)
    if factors is not None:
        for bag in range(bags):
            poke(factors, bag, 1.0)
    return others, wrong or offset_at(offsets, bags, is_open, bags, size) != size


@inline
def _pack(ids, size, offsets, is_open, bags, rows, kind, words, factors):
    """Check and pack the entries of one table, and note the factor of each bag; tells whether an entry is bad."""
    if bags == size:
        others, wrong = _pack_single(ids, size, offsets, is_open, bags, rows, words, factors)
        if not others:
            return wrong
    begin, wrong = np.int64(0), False
    for bag in range(bags):
        end = np.int64(offset_at(offsets, bag + 1, is_open, bags, size))
        if end < begin or end > size:
            return True
        if factors is not None:
            poke(factors, bag, scale_of(kind, max(end - begin, 1)))
        for i in range(begin, end):
            row = np.int64(peek(ids, i))
            wrong |= bool(np.uint64(row) >= np.uint64(rows))
            poke(words, i, row << PLACE_BITS | bag)
        begin = end
    return wrong or begin != size


@inline
def _insert(words, size):
    """Sort a few words by row, stable."""
    for i in range(1, size):
        word, k = peek(words, i), i
        while k > 0 and peek(words, k - 1) >> PLACE_BITS > word >> PLACE_BITS:
            poke(words, k, peek(words, k - 1))
            k -= 1
        poke(words, k, word)


@inline
def _order(words, others, size, rows, note):
    """Sort words by row; notes how many there are, and which of the two has them then."""
    poke(note, ENTRIES, size)
    poke(note, IS_ODD, 0)
    if size <= VERY_FEW:
        _insert(words, size)
    else:
        bits = digit_bits(size)
        sort_by_row(words, others, at(WORDS, room(MOST_DIGITS)), size, PLACE_BITS, rows, bits)
        poke(note, IS_ODD, passes_for(rows, bits) % 2)


@inline
def _count(ordered, note):
    """Note how many different rows there are."""
    before, unique = np.int64(-1), np.int64(0)
    for k in range(peek(note, ENTRIES)):
        row = peek(ordered, k) >> PLACE_BITS
        unique += row != before
        before = row
    poke(note, UNIQUE, unique)


@inline
def _sum(lanes, ordered, size, grads, stride, factors, factor_mask, ordinal, sums, width, places):
    """Sum the rows to their places in the result, which begin at `ordinal`; gives where they end."""
    first = np.int64(0)
    while first < size:
        last = min(first + BLOCK, size)
        while last < size and peek(ordered, last) >> PLACE_BITS == peek(ordered, last - 1) >> PLACE_BITS:
            last += 1
        ordinal += sum_block(lanes, ordered, first, last, PLACE_BITS, grads, stride, factors, 0, factor_mask, True,
                             ordinal, sums, width, places)  # fmt: skip
        first = last
    return ordinal


@inline
def _kept(notes, parts):
    """How many entries the parts have: all, unless another thread changes ids while each part reads them."""
    found = np.int64(0)
    for part in range(parts):
        found += peek(at(WORDS, notes + 8 * LINE * part), ENTRIES)
    return found


@inline
def _gradient_share(counters, notes, parts, like, lanes_for, scaled, stored, rows, width, kind, factors, ids, size,
                    offsets, is_open, bags, grads, stride, places, sums, words):  # fmt: skip
    """The part of a thread. Each packs all entries, and keeps those of its rows."""
    shared = at(WORDS, counters)
    if words == 0:
        words = room(OWN)
    spread = FACTOR_BYTES * bags
    factor_mask = np.int64(0) if scaled is None else np.int64(PLACES)
    for part in share((shared, shared), 0, parts):
        note, behind = at(WORDS, notes + 8 * LINE * part), at(WORDS, notes + 8 * LINE * (part + 1))
        first = words + 16 * size * part
        mine, others = at(WORDS, first), at(WORDS, first + 8 * size)
        if _pack(at(like, ids), size, at(like, offsets), is_open, bags, rows, kind, mine,
                 at_if(scaled, lanes_for, factors + spread * part)):  # fmt: skip
            atomic_add(shared, WRONG, 1)
        else:
            kept = size
            if parts > 1:
                kept = keep_rows(mine, None, np.int64(0), size, peek(note, LOW), peek(behind, LOW))
            _order(mine, others, kept, rows, note)
            if part + 1 < parts:
                _count(at(WORDS, first + 8 * size * peek(note, IS_ODD)), note)
    if peek(shared, WRONG) == 0 and _kept(notes, parts) == size:
        for part in share((shared, shared), 1, parts):
            note, ordinal = at(WORDS, notes + 8 * LINE * part), np.int64(0)
            for before in range(part):
                ordinal += peek(at(WORDS, notes + 8 * LINE * before), UNIQUE)
            ordered = at(WORDS, words + 16 * size * part + 8 * size * peek(note, IS_ODD))
            ordinal = _sum(zeros(lanes_for), ordered, peek(note, ENTRIES), at(stored, grads), stride,
                           at(lanes_for, factors if scaled is None else factors + spread * part), factor_mask, ordinal,
                           at(stored, sums), width, at(WORDS, places))  # fmt: skip
            poke(note, TOTAL, ordinal)
    if parts > 1:
        leave_team(shared)


@kernel
def gradient(run_parallel, threads, like, lanes_for, scaled, stored, rows, width, kind, factors, ids, size, offsets,
             is_open, bags, grads, stride, places, sums, words):  # fmt: skip
    """Write the gradient of one table; gives how many rows it has, or -1 if an id or an offset is bad.

    If a thread of the team came late, -2 - rows. The gradients of two bags are `stride` elements apart. `factors` is
    the address of a 1; or, where bags are `scaled`, of room for `FACTOR_BYTES` for each bag and thread. `words` is room
    for two words of each entry and a line of notes for each thread, and one line more. One thread needs none for up to
    `OWN_ENTRIES`, and it is 0.
    """
    counters, notes, parts = room(COUNTERS), room(NOTES), min(threads, MOST_PARTS)
    shared = at(WORDS, counters)
    if parts > 1:
        notes = words + 16 * size * parts
        noted, samples = at(WORDS, notes), sample(at(like, ids), np.int64(0), size, rows)
        poke(noted, LOW, 0)
        for part in range(1, parts):
            poke(noted, LINE * part + LOW, peek(samples, part * SAMPLES // parts))
        poke(noted, LINE * parts + LOW, rows)
        ask_team(shared)
    on_team(run_parallel, threads, _gradient_share,
            (counters, notes, parts, like, lanes_for, scaled, stored, rows, width, kind, factors, ids, size, offsets,
             is_open, bags, grads, stride, places, sums, words))  # fmt: skip
    if peek(shared, WRONG) > 0 or _kept(notes, parts) != size:
        return np.int64(-1)
    total = peek(at(WORDS, notes), LINE * (parts - 1) + TOTAL)
    return -2 - total if parts > 1 and has_waited(shared) else total
