"""Kernels of the plain segment reductions: rows of an array, taken in their order, become one row for each segment.

Sorted segments are runs of rows. The order of their sums and products is TensorFlow's: columns in whole packets have
four running totals from `LONG` rows on, all other columns have one. Unsorted segments have one total a column, and
each thread takes a range of segments and looks at all ids.

A kernel gets its reduction as an array without elements, whose number of dimensions says which it is (`kind_of`), so
that it is compiled only for the reductions that are in use.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import block_start, count, fill, load, put_result, store, take_last, zeros
from rowgrad._kernels.raw import fill_range, peek, peek_bounded, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share

LONG = 16  # rows of a segment from which on packets have four totals
BLOCK = 2048  # entries that are checked, then reduced while they are in the cache
FAR = 4 << 20  # bytes of data that do not stay in the caches: rows are fetched ahead; in the caches that costs 10 %
AHEAD = 10 << 10  # bytes
LONG_RUNS = 4  # a block whose segments have so many rows on average is reduced segment by segment

# The reductions. The larger of two equal values, or of a NaN and a number, is the earlier one or the later one.
ADD, MULTIPLY, LARGER, LARGER_LATER, SMALLER, SMALLER_LATER = range(6)


@cache
def kind_of(reduction: int) -> "np.ndarray[Any, Any]":
    """What tells a kernel its reduction."""
    return np.empty((0,) * (reduction + 1), bool)


@intrinsic
def combine(typingctx: Any, kind: Any, total: Any, value: Any) -> Any:
    """The next total, lane by lane."""
    reduction, dtype = kind.ndim - 1, total.dtype

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, total, value = args
        is_integer = isinstance(dtype, types.Integer)
        if reduction in (ADD, MULTIPLY):
            names = ("add", "mul") if is_integer else ("fadd", "fmul")
            return getattr(builder, names[reduction])(total, value)
        compare = builder.fcmp_ordered
        if is_integer:
            compare = builder.icmp_signed if dtype.signed else builder.icmp_unsigned
        if reduction == LARGER:
            return builder.select(compare("<", total, value), value, total)
        if reduction == LARGER_LATER:
            return builder.select(compare("<", value, total), total, value)
        if reduction == SMALLER:
            return builder.select(compare("<", value, total), value, total)
        return builder.select(compare("<", total, value), total, value)

    return total(kind, total, value), codegen


@intrinsic
def divided(typingctx: Any, total: Any, divisor: Any) -> Any:
    """`total` over `divisor`, lanes of the same type; integers are left as they are."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0] if isinstance(total.dtype, types.Integer) else builder.fdiv(*args)

    return total(total, divisor), codegen


@intrinsic
def choose(typingctx: Any, condition: Any, yes: Any, no: Any) -> Any:
    """`yes` if the condition holds, else `no`, without a branch."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(*args)

    return yes(types.boolean, yes, no), codegen


@inline
def _one_total(lanes, kind, start, data, first, last, width, column):
    total = fill(lanes, start[0])
    for row in range(first, last):
        total = combine(kind, total, load(lanes, data, row * width + column))
    return total


@inline
def _four_totals(lanes, kind, start, data, first, last, width, column):
    none = fill(lanes, start[0])
    one, two, three, four = none, none, none, none
    row = first
    while row + 4 <= last:
        one = combine(kind, one, load(lanes, data, row * width + column))
        two = combine(kind, two, load(lanes, data, (row + 1) * width + column))
        three = combine(kind, three, load(lanes, data, (row + 2) * width + column))
        four = combine(kind, four, load(lanes, data, (row + 3) * width + column))
        row += 4
    total = combine(kind, combine(kind, combine(kind, one, two), three), four)
    while row < last:
        total = combine(kind, total, load(lanes, data, row * width + column))
        row += 1
    return total


@inline
def _reduce_segment(lanes, packed_kind, kind, start, data, first, last, width, packed, output, segment):
    """Reduce the rows from `first` to `last`. Columns from `packed` on are done first, with some before them."""
    length = last - first
    base = segment * width
    if length == 1:
        for column in range(0, width, count(lanes)):
            here = block_start(lanes, column, width)
            store(output, base + here, load(lanes, data, first * width + here))
        return
    for column in range(packed, width, count(lanes)):
        here = block_start(lanes, column, width)
        total = _one_total(lanes, kind, start, data, first, last, width, here)
        store(output, base + here, total)
    for column in range(0, packed, count(lanes)):
        here = block_start(lanes, column, packed)
        if length < LONG:
            store(output, base + here, _one_total(lanes, packed_kind, start, data, first, last, width, here))
        else:
            store(output, base + here, _four_totals(lanes, packed_kind, start, data, first, last, width, here))


@inline
def _reduce_runs(lanes, kind, start, mean, ids, first, last, rows, data, width, column, output):
    """Reduce one block of columns of whole segments, finding the end of each while it is reduced."""
    while first < last:
        segment = peek_bounded(ids, first, rows)
        end = first + 1
        alone = load(lanes, data, first * width + column)
        total = combine(kind, fill(lanes, start[0]), alone)
        while end < last and peek(ids, end) == segment:
            total = combine(kind, total, load(lanes, data, end * width + column))
            end += 1
        if end == first + 1:
            total = alone
        elif mean:
            total = divided(total, fill(lanes, end - first))
        store(output, segment * width + column, total)
        first = end


@inline
def _reduce_short(lanes, kind, start, ids, first, last, rows, data, is_far, width, column, output, nontemporal):
    """The same for segments of less than `LONG` rows; tells whether there were others, which are left as they are."""
    any_long = False
    while first < last:
        segment = peek_bounded(ids, first, rows)
        end = first + 1
        alone = load(lanes, data, first * width + column)
        total = combine(kind, fill(lanes, start[0]), alone)
        while end < last and peek(ids, end) == segment:
            if is_far:
                prefetch(data, end * width + column + AHEAD // data.itemsize)
            total = combine(kind, total, load(lanes, data, end * width + column))
            end += 1
        put_result(output, segment * width + column, choose(end == first + 1, alone, total), nontemporal)
        any_long |= end - first >= LONG
        first = end
    return any_long


@inline
def _reduce_stream(lanes, kind, start, mean, ids, first, last, rows, data, width, column, output):
    """The same, writing each partial result, of which the last stays: ends of short segments cannot be predicted."""
    none = fill(lanes, start[0])
    total = none
    before, length = np.int64(-1), np.int64(0)
    for i in range(first, last):
        segment = peek_bounded(ids, i, rows)
        is_next = segment == before
        value = load(lanes, data, i * width + column)
        total = combine(kind, choose(is_next, total, none), value)
        length = length + 1 if is_next else np.int64(1)
        result = divided(total, fill(lanes, length)) if mean else total
        store(output, segment * width + column, choose(is_next, result, value))
        before = segment


@inline
def _any_wrong(ids, first, last, rows):
    """Whether an id is out of range, or smaller than the one before. (LLVM vectorises this loop.)"""
    wrong = first == 0 and first < last and peek(ids, 0) < 0
    for i in range(max(first, 1), last):
        here = peek(ids, i)
        wrong |= (here < peek(ids, i - 1)) | (here >= rows)
    return wrong


@kernel
def check_sorted(workers, chunks, ids, rows, bad):
    """-1, or a position before the first id that is out of range or smaller than the one before it."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, ids.size), chunk_start(chunk + 1, chunks, ids.size)
        bad[chunk] = first if _any_wrong(ids, first, last, rows) else -1
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found


@inline
def _begin_chunk(ids, chunk, chunks, rows, bad):
    """Where the segments of a chunk begin and end: one that began in an earlier chunk is reduced there."""
    first, stop = chunk_start(chunk, chunks, ids.size), chunk_start(chunk + 1, chunks, ids.size)
    bad[chunk] = first if _any_wrong(ids, first, min(first + 1, stop), rows) else -1
    while 0 < first < stop and peek(ids, first) == peek(ids, first - 1):
        first += 1
    return first, stop


@inline
def _next_block(ids, first, stop, rows, before, width, empty, output):
    """Check the next entries, and fill the gaps between them; where they end, and how many segments they have.

    The last segment is whole. There are no segments if an id is wrong.
    """
    last, segments = min(first + BLOCK, stop), np.int64(1)
    wrong = _any_wrong(ids, first, first + 1, rows)
    for i in range(first + 1, last):
        here, previous = peek(ids, i), peek(ids, i - 1)
        wrong |= (here < previous) | (here >= rows)
        segments += here != previous
    if wrong:
        return last, np.int64(0)
    while last < ids.size and peek(ids, last) == peek(ids, last - 1):
        last += 1
    if peek(ids, last - 1) - before != segments:
        for i in range(first, last):
            segment = peek_bounded(ids, i, rows)
            if segment > before + 1:
                fill_range(output, (before + 1) * width, segment * width, empty)
            before = segment
    return last, segments


@kernel
def reduce_wide(workers, chunks, ids, rows, data, width, packed, packed_kind, kind, start, empty, lanes_for, output,
                nontemporal, bad):  # fmt: skip
    """Reduce runs of equal ids; returns -1, or a position before the first bad id.

    `packed` columns, of which there are some, are reduced by `packed_kind`, the others by `kind`, both from `start[0]`
    on. Rows without a segment become `empty[0]`. `lanes_for` must fit into the packed columns. If `nontemporal`,
    rows of short segments are written by non-temporal stores. `bad` has room for a position per chunk.
    """
    seen = enter(workers)
    lanes = zeros(lanes_for)
    is_far = data.size * data.itemsize > FAR
    for chunk in share(workers, 0, chunks):
        first, stop = _begin_chunk(ids, chunk, chunks, rows, bad)
        before = peek_bounded(ids, first - 1, rows) if first > 0 else np.int64(-1)
        while first < stop and bad[chunk] < 0:
            last, segments = _next_block(ids, first, stop, rows, before, width, empty[0], output)
            if segments == 0:
                bad[chunk] = first
            # Short segments have one order in all columns, if all are reduced alike.
            is_short = packed_kind.ndim == kind.ndim and last - first < LONG * segments
            is_mixed = not is_short
            if is_short:
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    is_mixed = _reduce_short(lanes, kind, start, ids, first, last, rows, data, is_far, width, here,
                                             output, nontemporal)  # fmt: skip
            before = peek_bounded(ids, last - 1, rows)
            while first < last and is_mixed:
                segment = peek_bounded(ids, first, rows)
                end = first + 1
                while end < last and peek(ids, end) == segment:
                    end += 1
                if not is_short or end - first >= LONG:
                    _reduce_segment(lanes, packed_kind, kind, start, data, first, end, width, packed, output, segment)
                first = end
            first = last
        if stop == ids.size:
            fill_range(output, (before + 1) * width, rows * width, empty[0])
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found


@kernel
def reduce_narrow(workers, chunks, ids, rows, data, width, kind, start, empty, mean, lanes_for, output, bad):
    """The same, where no column is packed; divided by the number of rows if `mean`."""
    seen = enter(workers)
    lanes = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        first, stop = _begin_chunk(ids, chunk, chunks, rows, bad)
        before = peek_bounded(ids, first - 1, rows) if first > 0 else np.int64(-1)
        while first < stop and bad[chunk] < 0:
            last, segments = _next_block(ids, first, stop, rows, before, width, empty[0], output)
            if segments == 0:
                bad[chunk] = first
            for column in range(0, width, count(lanes)):
                here = block_start(lanes, column, width)
                if last - first >= LONG_RUNS * segments:
                    _reduce_runs(lanes, kind, start, mean, ids, first, last, rows, data, width, here, output)
                else:
                    _reduce_stream(lanes, kind, start, mean, ids, first, last, rows, data, width, here, output)
            before = peek_bounded(ids, last - 1, rows)
            first = last
        if stop == ids.size:
            fill_range(output, (before + 1) * width, rows * width, empty[0])
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found


@inline
def past_the_end(workers, chunks, ids, rows, bad):
    """The first phase of a kernel: -1, or a position before the first id past `rows`. `bad` has room for each chunk."""
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, ids.size), chunk_start(chunk + 1, chunks, ids.size)
        wrong = False
        for i in range(first, last):
            wrong |= peek(ids, i) >= rows
        poke(bad, chunk, first if wrong else -1)
    return lowest(bad, chunks)


@kernel
def reduce_unsorted(workers, chunks, strips, ids, rows, data, width, kind, start, divisors, lanes_for, totals, rounds,
                    output, bad):  # fmt: skip
    """Reduce the rows of each id, in their order, from `start[0]` on; negative ids are left out.

    Returns -1, or a position before the first id past `rows`, in which case nothing is written. `totals` is of the type
    that sums are made in: `output` itself, or, if `rounds`, apart from it. They are then divided by `divisors`, if
    there are any, and rounded.
    """
    seen = enter(workers)
    size = ids.size
    lanes = zeros(lanes_for)
    wrong = past_the_end(workers, chunks, ids, rows, bad)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for strip in share(workers, 1, strips):
        low, high = chunk_start(strip, strips, rows), chunk_start(strip + 1, strips, rows)
        fill_range(totals, low * width, high * width, start[0])
        for i in range(size):
            row = peek(ids, i)
            if low <= row < high:
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    total = load(lanes, totals, row * width + here)
                    value = combine(kind, total, load(lanes, data, i * width + here))
                    # Columns that the block before has done stay as they are.
                    store(totals, row * width + here, take_last(value, total, count(lanes) - (column - here)))
        if rounds:
            for row in range(low, high):
                divisor = fill(lanes, divisors[row] if divisors.size > 0 else 1)
                for column in range(0, width, count(lanes)):
                    place = row * width + block_start(lanes, column, width)
                    store(output, place, divided(load(lanes, totals, place), divisor))
    leave(workers, seen)
    return np.int64(-1)


@kernel
def multiply_sorted(ids, rows, data, width, packed, output):
    """The product of complex rows of each segment, in the order that `reduce_sorted` has; `output` comes as ones."""
    first = 0
    while first < ids.size:
        segment = peek_bounded(ids, first, rows)
        last = first + 1
        while last < ids.size and peek(ids, last) == segment:
            last += 1
        for column in range(width):
            place = segment * width + column
            one, two, three, four = output[place], output[place], output[place], output[place]
            row = first
            if last - first == 1:
                one = data[first * width + column]
                row = last
            elif column < packed and last - first >= LONG:
                while row + 4 <= last:
                    one = one * data[row * width + column]
                    two = two * data[(row + 1) * width + column]
                    three = three * data[(row + 2) * width + column]
                    four = four * data[(row + 3) * width + column]
                    row += 4
                one = one * two * three * four
            while row < last:
                one = one * data[row * width + column]
                row += 1
            output[place] = one
        first = last


@kernel
def multiply_unsorted(ids, rows, data, width, output):
    """The same for ids in any order; negative ids are left out. Returns the first id past `rows`, or -1."""
    for i in range(ids.size):
        if peek(ids, i) >= rows:
            return i
    for i in range(ids.size):
        row = peek(ids, i)
        if 0 <= row < rows:
            for column in range(width):
                output[row * width + column] = output[row * width + column] * data[i * width + column]
    return -1
