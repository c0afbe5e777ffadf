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
from rowgrad._kernels.lanes import block_start, count, fill, store, store_nontemporal, zeros
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import atomic_add, share
from rowgrad._kernels.sparse_segment import row_of, scale_segment, sum_segment
from rowgrad._kernels.team import COUNTERS, at, at_if, has_waited, leave_team, on_team, room

WORDS = np.empty(0, np.int64)
WRONG = COUNTERS - 1  # the counter of parts that have a bad id or offset
BAGS = 64  # are pooled before it is looked at how long the next ones are


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
def _put(output, place, total, nontemporal):
    if nontemporal:
        store_nontemporal(output, place, total)
    else:
        store(output, place, total)


@inline
def _lengths(offsets, begin, end, stop):
    """The least and the greatest length of a bag, the last of which ends at `stop`; negative if an offset is bad."""
    least = stop - peek(offsets, end - 1)
    most = least
    for bag in range(begin, end - 1):
        length = peek(offsets, bag + 1) - peek(offsets, bag)
        least, most = min(least, length), max(most, length)
    return least, most


@inline
def _copy_rows(lanes, column, ids, first, last, rows, width, ahead, table, output, place, stride, nontemporal):
    """Pool bags of one id each."""
    for i in range(first, last):
        row = row_of(lanes, ids, i, last, rows, table, width, column, ahead)
        _put(output, place, row, nontemporal)
        place += stride


@inline
def _sum_weighted(lanes, ids, weights, first, last, stop, rows, table, width, column, ahead):
    """The products of a bag from left to right."""
    total = lanes
    for i in range(first, last):
        row = row_of(lanes, ids, i, stop, rows, table, width, column, ahead)
        total = total + row * fill(lanes, peek(weights, i))
    return total


@inline
def _sum_bags(lanes, scaled, weights, column, ids, first, stop, offsets, begin, end, rows, width, kind, ahead, table,
              output, place, stride, nontemporal):  # fmt: skip
    """Pool bag by bag. Offsets are bounded here, since another thread may change them."""
    for bag in range(begin, end):
        last = min(max(peek(offsets, bag + 1), first), stop) if bag + 1 < end else stop
        total = lanes
        if weights is not None:
            total = _sum_weighted(lanes, ids, weights, first, last, stop, rows, table, width, column, ahead)
        elif first < last:
            total = sum_segment(lanes, ids, first, last, stop, rows, table, width, column, ahead)
            if scaled is not None:
                total = scale_segment(total, last - first, kind)
        _put(output, place, total, nontemporal)
        place += stride
        first = last


@inline
def _pool_bags(lanes, scaled, weights, feature, ids, size, offsets, begin, end, last, place, table, output, stride,
               nontemporal):  # fmt: skip
    """Pool the bags from `begin` to `end` of one feature, up to entry `last`; tells whether an id or offset is bad."""
    rows, width, kind, ahead = peek(feature, ROWS), peek(feature, WIDTH), peek(feature, KIND), peek(feature, AHEAD)
    first = peek(offsets, begin)
    least, most = _lengths(offsets, begin, end, last)
    if first < 0 or last > size or least < 0 or first > last or (rows == 0 and first < last):
        return True
    for column in range(0, width, count(lanes)):
        here = block_start(lanes, column, width)
        if weights is None and most == 1 and least == 1 and last - first == end - begin:
            _copy_rows(lanes, here, ids, first, last, rows, width, ahead, table, output, place + here, stride,
                       nontemporal)  # fmt: skip
        else:
            _sum_bags(lanes, scaled, weights, here, ids, first, last, offsets, begin, end, rows, width, kind, ahead,
                      table, output, place + here, stride, nontemporal)  # fmt: skip
    return any_outside(ids, first, last, rows)


@inline
def _pool_share(counters, chunks, tiles, like, lanes_for, scaled, weights_like, stored, features, ids, size, offsets,
                is_open, bags, weights, output, stride, nontemporal):  # fmt: skip
    """The part of a thread: tiles of bags, feature by feature, so that what is hot of a table stays in a cache."""
    shared = at(WORDS, counters)
    entry_weights = at_if(weights_like, weights_like, weights)
    for chunk in share((shared, shared), 0, chunks):
        number = chunk // tiles
        tile = chunk - number * tiles
        feature = at(WORDS, features + 8 * FEATURE_FIELDS * number)
        base = peek(feature, NUMBER) * bags
        begin, stop, wrong = base + tile * bags // tiles, base + (tile + 1) * bags // tiles, False
        while begin < stop:
            end = min(begin + BAGS, stop)
            place = (begin - base) * stride + peek(feature, COLUMN)
            last = offset_at(at(like, offsets), end, is_open, bags, size)
            wrong |= _pool_bags(
                zeros(lanes_for), scaled, entry_weights, feature, at(like, ids), size, at(like, offsets), begin, end,
                last, place, at(stored, peek(feature, TABLE)), at(stored, output), stride, nontemporal,
            )  # fmt: skip
            begin = end
        if wrong:
            atomic_add(shared, WRONG, 1)
    leave_team(shared)


@kernel
def pool(run_parallel, threads, total, number_of, tiles, like, lanes_for, scaled, weights_like, stored, features, ids,
         size, offsets, is_open, bags, weights, output, stride, nontemporal):  # fmt: skip
    """Pool `number_of` features of `total` into the columns of `output`.

    If `is_open`, there is one feature, and the offsets do not tell where its last bag ends: with the last id. The
    kernel gives 0; or a positive number if an id or an offset is bad, and then what was written has no meaning; or LATE
    if all is well, but a thread of the team came late.
    """
    counters = room(COUNTERS)
    if bags > 0 and peek(at(like, offsets), 0) != 0:
        return np.int64(1)
    if offset_at(at(like, offsets), total * bags, is_open, bags, size) != size:
        return np.int64(1)
    on_team(run_parallel, threads, _pool_share,
            (counters, number_of * tiles, tiles, like, lanes_for, scaled, weights_like, stored, features, ids, size,
             offsets, is_open, bags, weights, output, stride, nontemporal))  # fmt: skip
    shared = at(WORDS, counters)
    wrong = peek(shared, WRONG)
    return wrong if wrong != 0 or not has_waited(shared) else np.int64(LATE)
