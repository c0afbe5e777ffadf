"""Pooled look-ups in many tables by one call, on plain addresses.

A model has dozens of tables, and a call for each costs more than its work. A feature is a list of bags of ids for one
table; a `Feature` describes it. Features whose tables have one type and one vector width are pooled by
one kernel. Offsets are those of all features: feature f has the bags from f · bags on.

The additions are made in the order of `sparse_segment.pool`, so the results are the same to the bit.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.described import AHEAD, COLUMN, FEATURE_FIELDS, KIND, NUMBER, ROWS, TABLE, WIDTH
from rowgrad._kernels.kinds import LATE
from rowgrad._kernels.lanes import block_start, count, fetch, fill, put_result, zeros
from rowgrad._kernels.raw import equal_bytes, lowest_bit, peek, poke
from rowgrad._kernels.sharing import LINE, atomic_add
from rowgrad._kernels.sparse_segment import row_of, scale_segment, sum_segment
from rowgrad._kernels.team import (
    COUNTERS,
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

WORDS, BYTES = np.empty(0, np.int64), np.empty(0, np.uint8)
WRONG = COUNTERS - 1  # the counter of parts that have a bad id or offset
BAGS = 64  # are pooled before it is looked at how long the next ones are
MOST_CLASSES = 12  # of lengths, for bags to be pooled in the order of their lengths
# Bytes of rows of so many bags, for that order. Where there are more, adding them takes longer than the processor needs
# to go on after a loop that ended unforeseen; and what is fetched for the next bags would drive out what these need.
NEAR = 64 << 10
LOCAL = 2 * BAGS  # words that a thread keeps of the bags that it pools
ALL = np.uint64(2**64 - 1)


@inline
def any_outside(ids, first, last, limit):
    """Whether an id is not in [0, limit). (LLVM vectorises this loop.)"""
    wrong = False
    for i in range(first, last):
        wrong |= bool(np.uint64(peek(ids, i)) >= np.uint64(limit))
    return wrong


@inline
def offset_at(offsets, bag, is_open, bags, size):
    """Where a bag begins, which may be the one behind the last."""
    return size if is_open and bag == bags else peek(offsets, bag)


@inline
def _keep_starts(offsets, begin, end, stop, starts):
    """Keep where bags begin, and behind them where the last one ends; the least and the greatest length of a bag.

    Offsets are the caller's, and another thread may change them: they are read once.
    """
    for bag in range(begin, end):
        poke(starts, bag - begin, peek(offsets, bag))
    poke(starts, end - begin, stop)
    least = most = stop - peek(starts, end - begin - 1)
    for k in range(end - begin - 1):
        length = peek(starts, k + 1) - peek(starts, k)
        least, most = min(least, length), max(most, length)
    return least, most


@inline
def _fetch_ahead(lanes, ids, i, size, table, width, column, ahead):
    """Have the row fetched that is needed so many entries later."""
    if ahead > 0:
        fetch(lanes, table, peek(ids, min(i + ahead, size - 1)) * width + column)


@inline
def _copy_rows(lanes, column, ids, first, last, size, rows, width, ahead, table, output, place, stride, nontemporal):
    """Pool bags of one id each."""
    for i in range(first, last):
        _fetch_ahead(lanes, ids, i, size, table, width, column, ahead)
        put_result(output, place, row_of(lanes, ids, i, rows, table, width, column, 0), nontemporal)
        place += stride


@inline
def _sum_weighted(lanes, ids, weights, first, last, stop, rows, table, width, column, ahead):
    """The products of a bag from left to right."""
    total = lanes
    for i in range(first, last):
        _fetch_ahead(lanes, ids, i, stop, table, width, column, ahead)
        row = row_of(lanes, ids, i, rows, table, width, column, 0)
        total = total + row * fill(lanes, peek(weights, i))
    return total


@inline
def _sum_bags(lanes, scaled, weights, column, ids, starts, lengths, bags, classes, size, rows, width, kind, ahead,
              table, output, place, stride, nontemporal):  # fmt: skip
    """Pool bag by bag; if there are several classes of lengths, one class after the other."""
    for length in range(classes):
        left = ALL >> (64 - bags)
        if classes > 1:
            left &= equal_bytes(lengths, length)
        while left != 0:
            bag = lowest_bit(left)
            left &= left - np.uint64(1)
            first, last = peek(starts, bag), peek(starts, bag + 1)
            total = lanes
            if weights is not None:
                total = _sum_weighted(lanes, ids, weights, first, last, size, rows, table, width, column, ahead)
            elif first < last:
                total = sum_segment(lanes, ids, first, last, size, rows, table, width, column, ahead)
                if scaled is not None:
                    total = scale_segment(total, last - first, kind)
            put_result(output, place + bag * stride, total, nontemporal)


@inline
def pool_bags(lanes, scaled, weights, feature, ids, size, offsets, begin, end, last, place, table, output, stride,
              nontemporal, local):  # fmt: skip
    """Pool the bags from `begin` to `end` of one feature, up to entry `last`; tells whether an id or offset is bad."""
    rows, width, kind, ahead = peek(feature, ROWS), peek(feature, WIDTH), peek(feature, KIND), peek(feature, AHEAD)
    starts, lengths, bags = at(WORDS, local), at(BYTES, local + 8 * (BAGS + LINE)), end - begin
    least, most = _keep_starts(offsets, begin, end, last, starts)
    first = peek(starts, 0)
    if first < 0 or last > size or least < 0 or most > size or first > last or (rows == 0 and first < last):
        return True
    if weights is None and most == 1 and least == 1:
        for column in range(0, width, count(lanes)):
            here = block_start(lanes, column, width)
            _copy_rows(lanes, here, ids, first, last, size, rows, width, ahead, table, output, place + here, stride,
                       nontemporal)  # fmt: skip
    else:
        classes = 1
        if weights is None and most - least < MOST_CLASSES and (last - first) * width * table.itemsize <= NEAR:
            classes = most - least + 1
        if classes > 1:
            # Bags of one length one after the other: a processor foresees how often a loop runs if it ran as often the
            # time before. The rows of the next bags are fetched meanwhile.
            for k in range(bags):
                poke(lengths, k, np.uint8(peek(starts, k + 1) - peek(starts, k) - least))
            if ahead > 0:
                ahead = last - first
        for column in range(0, width, count(lanes)):
            here = block_start(lanes, column, width)
            _sum_bags(lanes, scaled, weights, here, ids, starts, lengths, bags, classes, size, rows, width, kind, ahead,
                      table, output, place + here, stride, nontemporal)  # fmt: skip
    return any_outside(ids, first, last, rows)


@inline
def _pool_share(run_parallel, counters, ranges, number_of, tiles, like, lanes_for, scaled, weights_like, stored,
                features, ids, size, offsets, is_open, bags, weights, output, stride, nontemporal):  # fmt: skip
    """The part of a thread: features that lie side by side, then what is left of other threads' features.

    What is hot of a table stays in the caches of one core that way, and threads do not write side by side in the same
    rows of the output: a processor also fetches the lines behind those that it writes, and these would move from core
    to core. Of one feature, a thread has a range of bags.
    """
    shared = at(WORDS, counters)
    entry_weights = at_if(weights_like, weights_like, weights)
    local, own = room(LOCAL), thread_number(run_parallel)
    chunk = claim(shared, own, ranges, number_of * tiles)
    while chunk >= 0:
        number = chunk // tiles
        tile = chunk - number * tiles
        feature = at(WORDS, features + 8 * FEATURE_FIELDS * number)
        base, wrong = peek(feature, NUMBER) * bags, False
        begin, stop = base + tile * bags // tiles, base + (tile + 1) * bags // tiles
        while begin < stop:
            end = min(begin + BAGS, stop)
            place = (begin - base) * stride + peek(feature, COLUMN)
            last = offset_at(at(like, offsets), end, is_open, bags, size)
            wrong |= pool_bags(
                zeros(lanes_for), scaled, entry_weights, feature, at(like, ids), size, at(like, offsets), begin, end,
                last, place, at(stored, peek(feature, TABLE)), at(stored, output), stride, nontemporal, local,
            )  # fmt: skip
            begin = end
        if wrong:
            atomic_add(shared, WRONG, 1)
        chunk = claim(shared, own, ranges, number_of * tiles)
    leave_team(shared)


@kernel
def pool(run_parallel, threads, total, number_of, tiles, like, lanes_for, scaled, weights_like, stored, features, ids,
         size, offsets, is_open, bags, weights, output, stride, nontemporal):  # fmt: skip
    """Pool `number_of` features of `total` into the columns of `output`, the bags of each in so many `tiles`.

    If `is_open`, there is one feature, and the offsets do not tell where its last bag ends: with the last id. The
    kernel gives 0; or a positive number if an id or an offset is bad, and then what was written has no meaning; or LATE
    if all is well, but a thread of the team came late.
    """
    counters = room(WITH_RANGES)
    if bags > 0 and peek(at(like, offsets), 0) != 0:
        return np.int64(1)
    if offset_at(at(like, offsets), total * bags, is_open, bags, size) != size:
        return np.int64(1)
    shared = at(WORDS, counters)
    ask_team(shared)
    ranges = ranges_for(threads, number_of * tiles)
    on_team(run_parallel, threads, _pool_share,
            (run_parallel, counters, ranges, number_of, tiles, like, lanes_for, scaled, weights_like, stored, features,
             ids, size, offsets, is_open, bags, weights, output, stride, nontemporal))  # fmt: skip
    wrong = peek(shared, WRONG)
    return wrong if wrong != 0 or not has_waited(shared) else np.int64(LATE)
