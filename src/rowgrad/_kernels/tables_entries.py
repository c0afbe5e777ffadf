"""The entries of many tables, checked and packed: what the backward kernels over many tables work from.

Ids and offsets belong to the caller, and another thread may change them during a call. They are checked while they are
packed, and from then on only what was packed is used. An entry becomes a word: its row, and, in the lower half, where
the gradient of its bag lies.

Threads share the work in items: a table, or, where one table is all there is, a range of its rows.
"""

import numpy as np

from rowgrad._kernels.compile import inline
from rowgrad._kernels.described import (
    BEGIN,
    COLUMN,
    END,
    FEATURE,
    FEATURE_FIELDS,
    FEATURES,
    HIGH,
    ITEM_FIELDS,
    KIND,
    LOW,
    MOST,
    ROOM,
    ROWS,
    SIZE,
    START,
    TABLE_FIELDS,
)
from rowgrad._kernels.lanes import count, fill, store, zeros64
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sparse_segment_grad import scale_of
from rowgrad._kernels.tables import WORDS, offset_at
from rowgrad._kernels.team import at, room

SAMPLES = 64  # ids by which the rows of a table are divided
PLACE_BITS = 32
PLACES = (1 << PLACE_BITS) - 1


@inline
def _number_bags(words, factors, weights, start, feature, offsets, base, first, last, bags, stride):
    """Write where its gradient lies to the words of each entry, and its factor; tells whether an offset is bad."""
    lanes, column, kind = zeros64(words), peek(feature, COLUMN), peek(feature, KIND)
    begin = first
    for bag in range(bags):
        end = peek(offsets, base + bag + 1) if bag + 1 < bags else last
        if end < begin or end > last:
            return True
        # Also for an empty bag, over which the next one writes: nobody can tell whether a bag has ids or not.
        store(words, start + begin - first, fill(lanes, bag * stride + column))
        i = begin + count(lanes)
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
def keep_rows(words, factors, start, size, low, high):
    """Keep the entries with rows from `low` to `high`, in their order; tells how many these are."""
    kept = np.int64(0)
    for k in range(start, start + size):
        word = peek(words, k)
        poke(words, start + kept, word)
        if factors is not None:
            poke(factors, start + kept, peek(factors, k))
        row = word >> PLACE_BITS
        kept += (row >= low) & (row < high)
    return kept


@inline
def table_at(tables, number):
    """The description of a table."""
    return at(WORDS, tables + 8 * TABLE_FIELDS * number)


@inline
def item_at(items, number):
    """What is noted of an item."""
    return at(WORDS, items + 8 * ITEM_FIELDS * number)


@inline
def pack(item, table, features, ids, offsets, is_open, bags, stride, words, factors, weights):
    """Check and pack the entries of an item, and note how many there are; tells whether one is bad."""
    start, first, last, rows = peek(item, START), peek(item, BEGIN), peek(item, END), peek(table, ROWS)
    wrong, begin = rows == 0 and first < last, first
    if wrong:
        rows = 1
    for number in range(peek(table, FEATURE), peek(table, FEATURE) + peek(table, FEATURES)):
        end = offset_at(offsets, (number + 1) * bags, is_open, bags, last)
        if end < begin or end > last:
            return True
        feature = at(WORDS, features + 8 * FEATURE_FIELDS * number)
        wrong |= _number_bags(words, factors, weights, start + begin - first, feature, offsets, number * bags, begin,
                              end, bags, stride)  # fmt: skip
        begin = end
    wrong |= begin != last
    wrong |= _add_rows(words, start, ids, first, last, rows)
    size = last - first
    if peek(item, LOW) > 0 or peek(item, HIGH) < rows:
        size = keep_rows(words, factors, start, size, peek(item, LOW), peek(item, HIGH))
    poke(item, SIZE, size)
    return wrong


@inline
def sample(ids, first, last, rows):
    """Some of the ids from `first` to `last`, in ascending order; what is not a row, counts as the last one."""
    samples = at(WORDS, room(SAMPLES))
    for i in range(SAMPLES):
        row = np.int64(min(np.uint64(peek(ids, first + i * (last - first) // SAMPLES)), np.uint64(rows - 1)))
        k = i
        while k > 0 and peek(samples, k - 1) > row:
            poke(samples, k, peek(samples, k - 1))
            k -= 1
        poke(samples, k, row)
    return samples


@inline
def list_items(items, tables, number_of, parts, ids, offsets, is_open, bags, size, per):
    """Note the entries of each table, at most `per`, for each of its parts, which are ranges of rows.

    Whatever the offsets are, no two tables share an entry, and none has more than there is room for. What is cut off
    here is found to be bad later.
    """
    end, start = np.int64(0), np.int64(0)
    for number in range(number_of):
        table = table_at(tables, number)
        feature, rows = peek(table, FEATURE), peek(table, ROWS)
        first = min(max(end, offset_at(offsets, feature * bags, is_open, bags, size)), size)
        end = offset_at(offsets, (feature + peek(table, FEATURES)) * bags, is_open, bags, size)
        end = min(max(first, end), first + min(per, peek(table, MOST)), size)
        samples, low = at(WORDS, 0), np.int64(0)
        if parts > 1 and first < end and rows > 0:
            samples = sample(ids, first, end, rows)
        for part in range(parts):
            item, high = item_at(items, number * parts + part), rows
            if part + 1 < parts:
                high = peek(samples, (part + 1) * SAMPLES // parts) if first < end and rows > 0 else np.int64(0)
            poke(item, BEGIN, first)
            poke(item, END, end)
            poke(item, START, start)
            poke(item, LOW, low)
            poke(item, HIGH, high)
            start += end - first + ROOM
            low = high
