"""Kernels of the reductions of sparse tensors: entries that were put in order, group by group.

The order of a sum is that of Eigen, which TensorFlow uses: packets of 32 bytes have four running totals where there are
enough of them, these are added up, then the packets left over, then the lanes, each of the first half to its peer in
the second; the numbers left over have a total of their own. Sums of more than `LEAF` packets are cut in two.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import INT32, Lanes, count, fill, load, store, zeros
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.segments import ADD, combine
from rowgrad._kernels.sharing import add_up, chunk_start, enter, leave, share

LEAF = 1024  # packets that are summed without cutting them in two
DIGIT_BITS = 7  # by which a small call sorts
BUCKETS = 1 << DIGIT_BITS
DEPTH = 64  # halves of halves of more entries than there can be


@intrinsic
def across(typingctx: Any, kind: Any, lanes: Any, narrow: Any) -> Any:
    """Reduce lanes to as many as `narrow` has: each of the first half and its peer in the second, again and again."""
    reduction, dtype = kind.ndim - 1, lanes.dtype

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, left = args[1], lanes.count
        is_integer = isinstance(dtype, types.Integer)
        while left > narrow.count:
            left //= 2
            cuts = [ir.Constant(ir.VectorType(INT32, left), list(range(at, at + left))) for at in (0, left)]
            low, high = (builder.shuffle_vector(value, value, cut) for cut in cuts)
            if reduction == ADD:
                value = (builder.add if is_integer else builder.fadd)(low, high)
                continue
            compare = builder.fcmp_ordered
            if is_integer:
                compare = builder.icmp_signed if dtype.signed else builder.icmp_unsigned
            value = builder.select(compare("<", low, high), high, low)
        return value

    return narrow(kind, lanes, narrow), codegen


@intrinsic
def narrowed_to(typingctx: Any, lanes: Any, parts: Any) -> Any:
    """Zeros in the type of `lanes`, as many as one number has parts: `parts` is None for complex numbers."""
    one = Lanes(lanes.dtype, 2 if isinstance(parts, types.NoneType) else 1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(one), None)

    return one(lanes, parts), codegen


@inline
def _reduce_leaf(packed_kind, kind, start, lanes, one, values, first, size):
    """Reduce `size` numbers, each of so many lanes as `one` has, from number `first` on."""
    parts, packet = count(one), count(lanes)
    position, end = first * parts, (first + size) * parts
    none = fill(lanes, start[0])
    total = none
    if size * parts >= 4 * packet:
        two, three, four = none, none, none
        while position + 4 * packet <= end:
            total = combine(packed_kind, total, load(lanes, values, position))
            two = combine(packed_kind, two, load(lanes, values, position + packet))
            three = combine(packed_kind, three, load(lanes, values, position + 2 * packet))
            four = combine(packed_kind, four, load(lanes, values, position + 3 * packet))
            position += 4 * packet
        total = combine(packed_kind, combine(packed_kind, combine(packed_kind, total, two), three), four)
    while position + packet <= end:
        total = combine(packed_kind, total, load(lanes, values, position))
        position += packet
    rest = fill(one, start[0])
    while position < end:
        rest = combine(kind, rest, load(one, values, position))
        position += parts
    return combine(packed_kind, rest, across(packed_kind, total, one))


@inline
def _reduce_long(packed_kind, kind, start, lanes, one, values, first, size, stack, totals):
    """The same for a sum that is cut in two: the stack has what is left to do, `totals` what waits for its peer."""
    packet = count(lanes) // count(one)
    depth, waiting = np.int64(1), np.int64(0)
    stack[0], stack[1], stack[2] = 0, size, 0
    while depth > 0:
        depth -= 1
        begin, length, joins = stack[3 * depth], stack[3 * depth + 1], stack[3 * depth + 2]
        if length > packet * LEAF:
            cut = -(-(begin + (length + 1) // 2) // packet) * packet
            left = min(cut - begin, length)
            stack[3 * depth], stack[3 * depth + 1], stack[3 * depth + 2] = cut, length - left, joins + 1
            depth += 1
            stack[3 * depth], stack[3 * depth + 1], stack[3 * depth + 2] = begin, left, 0
            depth += 1
            continue
        total = _reduce_leaf(packed_kind, kind, start, lanes, one, values, first + begin, length)
        for _ in range(joins):
            waiting -= 1
            total = combine(packed_kind, load(one, totals, waiting * count(one)), total)
        store(totals, waiting * count(one), total)
        waiting += 1
    return load(one, totals, 0)


@inline
def _order(indices, entries, rank, order, fields, words, spare):
    """Put few entries in order, by words with as many bits for each index as its dimension needs, the position last.

    `order` has the dimensions, the one that matters most first; `fields` becomes the lowest index and the bits of each.
    Returns the bits of a position, or -1 if words would need more than 63 bits, and whether entries came in order. An
    index that changes meanwhile is cut to its bits.
    """
    position_bits, bits = np.int64(0), np.int64(0)
    while (entries - 1) >> position_bits != 0:
        position_bits += 1
    for a in range(rank):
        axis = order[a]
        low = high = peek(indices, axis)
        for i in range(1, entries):
            here = peek(indices, i * rank + axis)
            low, high = min(low, here), max(high, here)
        span, width = np.uint64(high) - np.uint64(low), np.int64(0)
        while width < 64 and span >> np.uint64(width) != 0:
            width += 1
        fields[a], fields[rank + a] = low, width
        bits += width
        if bits + position_bits > 63:
            return np.int64(-1), False
    before, is_sorted = np.int64(-1), True
    for i in range(entries):
        word = np.int64(0)
        for a in range(rank):
            width = fields[rank + a]
            word = word << width | (peek(indices, i * rank + order[a]) - fields[a]) & ((np.int64(1) << width) - 1)
        if word < before:
            is_sorted = False
        before = word
        poke(words, i, word << position_bits | i)
    if not is_sorted:
        _sort_small(words, spare, entries, position_bits, bits)
    return position_bits, is_sorted


@kernel
def order_small(indices, entries, rank, order, fields, words, spare):
    """Put few entries in order: returns 0 if they were, -1 if words cannot do it, else the bits of a position."""
    position_bits, is_sorted = _order(indices, entries, rank, order, fields, words, spare)
    return np.int64(0) if is_sorted else position_bits


@kernel
def group_small(indices, entries, rank, order, kept, fields, words, spare, starts, found):
    """All of it in one call, for few entries: put them in order, find the groups and the index of each.

    `order` has the dimensions that tell groups apart, `kept` of them, then the others. Returns the number of groups,
    negative if the entries were in order as they came, or 0 if it cannot be done by words.
    """
    shift, is_sorted = _order(indices, entries, rank, order, fields, words, spare)
    if shift < 0:
        return np.int64(0)
    for a in range(kept, rank):
        shift += fields[rank + a]
    groups = np.int64(0)
    for i in range(entries):
        if i == 0 or peek(words, i) >> shift != peek(words, i - 1) >> shift:
            starts[groups] = i
            word = peek(words, i) >> shift
            for a in range(kept - 1, -1, -1):
                width = fields[rank + a]
                found[groups * kept + a] = (word & ((np.int64(1) << width) - 1)) + fields[a]
                word >>= width
            groups += 1
    starts[groups] = entries
    return -groups if is_sorted else groups


@inline
def _sort_small(words, spare, size, low, bits):
    """Sort by `bits` bits from bit `low` on, a digit at a time; the words end up where they were."""
    counts = spare[size : size + BUCKETS]
    done = np.int64(0)
    while done < bits:
        shift = low + done
        counts[:] = 0
        for i in range(size):
            counts[(peek(words, i) >> shift) & (BUCKETS - 1)] += 1
        total = np.int64(0)
        for bucket in range(BUCKETS):
            here = counts[bucket]
            counts[bucket] = total
            total += here
        for i in range(size):
            word = peek(words, i)
            bucket = (word >> shift) & (BUCKETS - 1)
            poke(spare, counts[bucket], word)
            counts[bucket] += 1
        for i in range(size):
            poke(words, i, peek(spare, i))
        done += DIGIT_BITS


@kernel
def count_groups(workers, chunks, words, shift, counts):
    """How many groups begin before each chunk, and in all; a group has words that are equal from bit `shift` on."""
    seen = enter(workers)
    size = words.size
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        groups = np.int64(first == 0 < last)
        for i in range(max(first, 1), last):
            groups += peek(words, i) >> shift != peek(words, i - 1) >> shift
        counts[chunk] = groups
    for _ in share(workers, 1, 1):
        counts[chunks] = add_up(counts, chunks)
    leave(workers, seen)


@kernel
def find_groups(workers, chunks, words, shift, counts, starts):
    """Where each group begins; the last element of `starts` is where the last one ends."""
    seen = enter(workers)
    size = words.size
    for chunk in share(workers, 0, chunks):
        group = counts[chunk]
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            if i == 0 or peek(words, i) >> shift != peek(words, i - 1) >> shift:
                poke(starts, group, i)
                group += 1
        if chunk == chunks - 1:
            poke(starts, group, size)
    leave(workers, seen)


@kernel
def take_values(workers, chunks, words, mask, values, width, output):
    """Value k of the output is that at the position in words[k]."""
    seen = enter(workers)
    size = words.size
    for chunk in share(workers, 0, chunks):
        for k in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            position = peek(words, k) & mask
            for word in range(width):
                poke(output, k * width + word, peek(values, position * width + word))
    leave(workers, seen)


@kernel
def number_entries(workers, chunks, starts, words, mask, output):
    """Each entry gets the number of its group; without `words`, entries are in order."""
    seen = enter(workers)
    groups = starts.size - 1
    for chunk in share(workers, 0, chunks):
        for group in range(chunk_start(chunk, chunks, groups), chunk_start(chunk + 1, chunks, groups)):
            for k in range(starts[group], starts[group + 1]):
                poke(output, k if words is None else peek(words, k) & mask, group)
    leave(workers, seen)


@kernel
def reduce_groups(workers, chunks, starts, values, packed_kind, kind, start, lanes_for, parts, stack, totals, output):
    """Reduce each group of `values`, which are in order. `stack` and `totals` have room for each chunk."""
    seen = enter(workers)
    groups = starts.size - 1
    lanes = zeros(lanes_for)
    one = narrowed_to(lanes, parts)
    most = LEAF * (count(lanes) // count(one)) if packed_kind.ndim == 1 else np.int64(1) << 62
    for chunk in share(workers, 0, chunks):
        own_stack = stack[chunk * 3 * DEPTH : (chunk + 1) * 3 * DEPTH]
        own_totals = totals[chunk * 2 * DEPTH : (chunk + 1) * 2 * DEPTH]
        for group in range(chunk_start(chunk, chunks, groups), chunk_start(chunk + 1, chunks, groups)):
            first, size = starts[group], starts[group + 1] - starts[group]
            if size <= most:
                total = _reduce_leaf(packed_kind, kind, start, lanes, one, values, first, size)
            else:
                total = _reduce_long(packed_kind, kind, start, lanes, one, values, first, size, own_stack, own_totals)
            store(output, group * count(one), total)
    leave(workers, seen)


@kernel
def locate(workers, chunks, indices, rank, strides, limits, places, bad):
    """The place of each index in a dense tensor, or 0; tells whether one is out of range.

    Dimensions with a limit below 0 have no say. An index is bounded after it was read, so that no place is outside.
    """
    seen = enter(workers)
    size = places.size
    for chunk in share(workers, 0, chunks):
        wrong = False
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            place = np.int64(0)
            is_out = False
            for axis in range(rank):
                here, limit = peek(indices, i * rank + axis), limits[axis]
                if limit >= 0:
                    is_out |= (here < 0) | (here >= limit)
                    place += here * strides[axis]
            wrong |= is_out
            poke(places, i, np.int64(0) if is_out else place)
        bad[chunk] = wrong
    found = False
    for chunk in range(chunks):
        found |= bad[chunk] != 0
    leave(workers, seen)
    return found
