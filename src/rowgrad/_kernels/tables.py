"""Pooled look-ups in many tables by one call, on plain addresses.

A model has dozens of tables, and a call for each costs more than its work. Here features, each a list of bags of ids
for one table, are described by rows of a matrix (`FIELDS` numbers a feature), and all that have tables of one type and
rows of one vector width are pooled by one kernel.

The additions are made in the order of `sparse_segment.pool`, so the results are the same to the bit.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import block_start, count, store, store_nontemporal, zeros
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import atomic_add, share
from rowgrad._kernels.sparse_segment import row_of, scale_segment, sum_segment
from rowgrad._kernels.team import COUNTERS, at, on_team, room

FIELDS = 8
TABLE, ROWS, WIDTH, COLUMN, KIND, AHEAD = range(6)
WORDS = np.empty(0, np.int64)
BAGS = 64  # are pooled before it is looked at how long the next ones are


@inline
def any_outside(ids, first, last, limit):
    """Whether an id is not in [0, limit). (LLVM vectorises this loop.)"""
    wrong = False
    for i in range(first, last):
        wrong |= np.uint64(peek(ids, i)) >= np.uint64(limit)
    return wrong


@inline
def _put(output, place, total, nontemporal):
    if nontemporal:
        store_nontemporal(output, place, total)
    else:
        store(output, place, total)


@inline
def _lengths(offsets, begin, end, stop):
    """The least and the greatest length of a bag; the least is negative if an offset is bad."""
    least, most = stop, np.int64(0)
    for bag in range(begin, end):
        length = peek(offsets, bag + 1) - peek(offsets, bag)
        least, most = min(least, length), max(most, length)
    return least, most


@inline
def _copy_rows(lanes, column, ids, first, stop, begin, end, rows, width, ahead, table, output, place, stride,
               nontemporal):  # fmt: skip
    """Pool bags of one id each."""
    for i in range(first, first + end - begin):
        row = row_of(lanes, ids, i, stop, rows, table, width, column, ahead)
        _put(output, place, row, nontemporal)
        place += stride


@inline
def _sum_bags(lanes, scaled, column, ids, first, stop, offsets, begin, end, rows, width, kind, ahead, table, output,
              place, stride, nontemporal):  # fmt: skip
    """Pool bag by bag."""
    for bag in range(begin, end):
        last = min(max(peek(offsets, bag + 1), first), stop)
        total = lanes
        if first < last:
            total = sum_segment(lanes, ids, first, last, stop, rows, table, width, column, ahead)
            if scaled is not None:
                total = scale_segment(total, last - first, kind)
        _put(output, place, total, nontemporal)
        place += stride
        first = last


@inline
def _pool_bags(lanes, scaled, feature, ids, size, offsets, begin, end, table, output, stride, nontemporal):
    """Pool the bags from `begin` to `end` of one feature, at most `BAGS`; tells whether an id or an offset is bad."""
    rows, width, kind, ahead = peek(feature, ROWS), peek(feature, WIDTH), peek(feature, KIND), peek(feature, AHEAD)
    first, last = peek(offsets, begin), peek(offsets, end)
    least, most = _lengths(offsets, begin, end, size)
    if first < 0 or last > size or least < 0 or (rows == 0 and first < last):
        return True
    place = begin * stride + peek(feature, COLUMN)
    for column in range(0, width, count(lanes)):
        here = block_start(lanes, column, width)
        if most == 1 and least == 1 and last - first == end - begin:
            _copy_rows(lanes, here, ids, first, last, begin, end, rows, width, ahead, table, output, place + here,
                       stride, nontemporal)  # fmt: skip
        else:
            _sum_bags(lanes, scaled, here, ids, first, last, offsets, begin, end, rows, width, kind, ahead, table,
                      output, place + here, stride, nontemporal)  # fmt: skip
    return any_outside(ids, first, last, rows)


@inline
def _pool_share(counters, chunks, tiles, like, lanes_for, scaled, stored, features, ids, size, offsets, bags, output, stride,
                nontemporal):  # fmt: skip
    """The part of a thread: tiles of bags, feature by feature, so that what is hot of a table is in one core's cache."""
    words = at(WORDS, counters)
    for chunk in share((words, words), 0, chunks):
        number = chunk // tiles
        tile = chunk - number * tiles
        begin, stop = tile * bags // tiles, (tile + 1) * bags // tiles
        feature = at(WORDS, features + 8 * FIELDS * number)
        table, wrong = at(stored, peek(feature, TABLE)), False
        while begin < stop:
            end = min(begin + BAGS, stop)
            wrong |= _pool_bags(
                zeros(lanes_for), scaled, feature, at(like, ids), size, at(like, offsets + like.itemsize * number * bags),
                begin, end, table, at(stored, output), stride, nontemporal,
            )  # fmt: skip
            begin = end
        if wrong:
            atomic_add(words, COUNTERS - 1, 1)


@kernel
def pool(run_parallel, threads, chunks, tiles, like, lanes_for, scaled, stored, features, ids, size, offsets, bags, output,
         stride, nontemporal):  # fmt: skip
    """Pool all features; tells how many parts have a bad id or offset, and then what is written has no meaning."""
    counters = room(COUNTERS)
    on_team(run_parallel, threads, _pool_share,
            (counters, chunks, tiles, like, lanes_for, scaled, stored, features, ids, size, offsets, bags, output, stride,
             nontemporal))  # fmt: skip
    return peek(at(WORDS, counters), COUNTERS - 1)
