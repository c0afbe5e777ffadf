"""Kernels of the gradients of the fill operators: values taken back to their entries, the defaults' gradient summed.

The map from entries to their places mostly ascends by short steps. Then blocks are copied as they are, and the places
that are left out, which are those of defaults, are listed without a branch. The gradient of the default is one chain
of additions in the order of places; those of a part are added while the places of the next part are being listed.
Where the map does not ascend, a map of bytes tells which places it leaves out.

A call that is not large is one thread's (`fill_grad`); the kernels for several threads (`fill_grad_together`,
`fill_grad_scattered`) are made of the same parts.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.fill_empty_rows import copy_block
from rowgrad._kernels.lanes import INT32, load, spread, store, zeros1, zeros16, zeros64
from rowgrad._kernels.raw import fill_range, known, peek, poke
from rowgrad._kernels.sharing import atomic_add, atomic_load, chunk_start, enter, leave, lowest, share

BLOCK = 16
PART = 128  # entries whose defaults are listed before they are added
EIGHT = 8  # entries whose defaults are listed at once
FAR = 8  # if more than one step in so many is longer than two, a map is not taken to ascend by short steps

# By which of eight entries follow a default: how far the defaults are behind the first place, a byte for each.
LEFT_OUT = [sum(bit + t << 8 * t for t, bit in enumerate([bit for bit in range(EIGHT) if mask >> bit & 1]))
            for mask in range(256)]  # fmt: skip


@inline
def _is_ascending(reverse, first, place, full):
    """Whether the places of a block follow each other, behind `place`."""
    base = peek(reverse, first)
    breaks = False
    for j in range(BLOCK):
        breaks |= peek(reverse, first + j) != base + j
    return not breaks and place <= base <= full - BLOCK


@inline
def _copy_value(values, place, width, d_values, j):
    for w in range(width):
        poke(d_values, j * width + w, peek(values, place * width + w))


@inline
def _add_range(total, second, values, width, first, stop):
    """Add the values from `first` to `stop`, in this order; complex ones are pairs, with a second sum."""
    for place in range(first, stop):
        total = total + load(total, values, place * width)
        if width == 2:
            second = second + load(total, values, place * width + 1)
    return total, second


@inline
def _skip(total, second, values, width, first, stop, unmapped, listed):
    """Add the values of the places from `first` to `stop`, or list these places in `unmapped`, from `listed` on.

    Two are written in any case, and overwritten by the next: how many there are could not be predicted.
    """
    if unmapped is None:
        total, second = _add_range(total, second, values, width, first, stop)
    else:
        poke(unmapped, listed, first)
        poke(unmapped, listed + 1, first + 1)
        for k in range(2, stop - first):
            poke(unmapped, listed + k, first + k)
        listed += stop - first
    return total, second, listed


@inline
def _gather(reverse, first, stop, full, values, width, d_values, place, zero, unmapped, listed):
    """Copy values while their places ascend from `place` on, and add or list those between.

    Tells how far it came, the place behind the last value, both sums, and where the list ends.
    """
    total, second = zero, zero
    j = first
    while j < stop:
        if j + BLOCK <= stop and _is_ascending(reverse, j, place, full):
            base = min(max(peek(reverse, j), place), full - BLOCK)
            total, second, listed = _skip(total, second, values, width, place, base, unmapped, listed)
            copy_block(zeros16(values), values, base * width, d_values, j * width, BLOCK * width)
            j += BLOCK
            place = base + BLOCK
            continue
        for _ in range(min(BLOCK, stop - j)):
            here = peek(reverse, j)
            if here < place or here >= full:
                return j, place, total, second, listed
            total, second, listed = _skip(total, second, values, width, place, here, unmapped, listed)
            _copy_value(values, here, width, d_values, j)
            place = here + 1
            j += 1
    return j, place, total, second, listed


@inline
def _store_sum(total, second, width, d_default):
    store(d_default, 0, total)
    if width == 2:
        store(d_default, 1, second)


@inline
def _add_places(total, second, values, width, full, unmapped, first, stop):
    """Add the values of the places that `unmapped` lists from `first` to `stop`."""
    for k in range(first, stop):
        place = min(peek(unmapped, k), full - 1)
        total, second = _add_range(total, second, values, width, place, place + 1)
    return total, second


@intrinsic
def _list_gaps(typingctx: Any, places: Any, place: Any, unmapped: Any, listed: Any) -> Any:
    """List which places from `place` on eight ascending ones leave out, none or one before each.

    Tells how many, or -1 if it is not so. Eight places of the list are written, whatever their number.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        here, begin, listing, at = args
        vector, word, byte = here.type, begin.type, ir.IntType(8)
        start = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.sub(begin, word(1)), INT32(0))
        before = builder.shuffle_vector(start, here, ir.Constant(ir.VectorType(INT32, EIGHT), [0, *range(8, 15)]))
        steps = builder.sub(here, before)
        one, two = (ir.Constant(vector, [word(number)] * EIGHT) for number in (1, 2))
        is_one, is_two = (builder.bitcast(builder.icmp_signed("==", steps, each), byte) for each in (one, two))
        listing_of = cgutils.global_constant(builder, "left_out", ir.Constant(ir.ArrayType(word, 256), LEFT_OUT))
        row = builder.load(builder.gep(listing_of, [INT32(0), builder.zext(is_two, INT32)]))
        row = builder.zext(builder.bitcast(row, ir.VectorType(byte, EIGHT)), vector)
        row = builder.add(row, spread(builder, begin, EIGHT))
        pointer = builder.gep(context.make_array(unmapped)(context, builder, listing).data, [at])
        builder.store(row, builder.bitcast(pointer, vector.as_pointer()), align=8)
        is_close = builder.icmp_signed("==", builder.or_(is_one, is_two), byte(-1))
        return builder.select(is_close, builder.zext(builder.ctpop(is_two), word), word(-1))

    return types.int64(places, types.int64, unmapped, types.int64), codegen


@intrinsic
def _lane(typingctx: Any, lanes: Any, number: Any) -> Any:
    """One of the lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(*args)

    return lanes.dtype(lanes, types.int64), codegen


@inline
def _gather_close(reverse, size, full, values, width, d_values, zero, unmapped):
    """Copy values while their places ascend, mostly by one or two; the places between are listed, then added.

    Without a branch for each: whether one place is left out could not be predicted. A part is listed while the sum of
    the one before is still being made. Tells how far it came, the place behind the last value, and both sums.
    """
    total, second = zero, zero
    j, place, far = np.int64(0), np.int64(0), np.int64(0)
    while j < size:
        stop = min(j + PART, size)
        near = min(stop, j + (full - place) // 2)  # up to there, steps of two stay within the values
        listed = np.int64(0)
        while j + EIGHT <= near:
            places = load(zeros64(reverse), reverse, j)
            more = _list_gaps(places, place, unmapped, listed)
            if more < 0:
                break
            for k in range(EIGHT):
                _copy_value(values, _lane(places, k), width, d_values, j + k)
            listed += more
            place = _lane(places, EIGHT - 1) + 1  # not by `more`, which takes longer to know
            j += EIGHT
        while j < near:
            gap = peek(reverse, j) - place
            poke(unmapped, listed, place)  # overwritten by the next, unless this one is left out
            if gap & -2 != 0:
                break
            listed += gap
            _copy_value(values, place + gap, width, d_values, j)
            place += gap + 1
            j += 1
        total, second = _add_places(total, second, values, width, full, unmapped, np.int64(0), listed)
        if j < stop:
            here = peek(reverse, j)
            far += 1
            if here < place or here >= full or far > j // FAR + PART:
                break
            total, second = _add_range(total, second, values, width, place, here)
            _copy_value(values, here, width, d_values, j)
            place = here + 1
            j += 1
    return j, place, total, second


@inline
def _list_unmapped(mapped, first, stop, unmapped, listed):
    """List the places from `first` to `stop` that nothing is mapped to, from `listed` on; tells where the list ends."""
    for place in range(first, stop):
        poke(unmapped, listed, place)  # overwritten by the next, unless this one stays
        listed += peek(mapped, place) == 0
    return listed


@kernel
def fill_grad(reverse, values, width, sums, unmapped, mapped, d_values, d_default):
    """Copy each gradient back to the entry it came from, and sum those of the defaults, in ascending order.

    Returns the first bad position, or -1. `mapped` is scratch, one byte for each of the values, for maps that do not
    ascend. With `unmapped`, scratch for one place for each of the values and one more, places are listed before their
    values are added: where many values are defaults, a branch for each could not be predicted. `sums` is an empty array
    of the type that sums are made in.
    """
    words, zero = known(width, 1), zeros1(sums)
    full, size = mapped.size, reverse.size
    if unmapped is None:
        j, place, total, second, _ = _gather(reverse, 0, size, full, values, words, d_values, np.int64(0), zero, None,
                                             np.int64(0))  # fmt: skip
        if j == size:
            total, second = _add_range(total, second, values, words, place, full)
            _store_sum(total, second, words, d_default)
            return np.int64(-1)
    else:
        j, place, total, second = _gather_close(reverse, size, full, values, words, d_values, zero, unmapped)
        if j == size:
            total, second = _add_range(total, second, values, words, place, full)
            _store_sum(total, second, words, d_default)
            return np.int64(-1)
    mapped[:] = 0
    for j in range(size):
        place = peek(reverse, j)
        if place < 0 or place >= full:
            return np.int64(j)
        poke(mapped, place, 1)
        _copy_value(values, place, words, d_values, j)
    total, second = zero, zero
    place = np.int64(0)
    if unmapped is not None:
        listed = _list_unmapped(mapped, 0, full, unmapped, np.int64(0))
        total, second = _add_places(total, second, values, words, full, unmapped, np.int64(0), listed)
        place = np.int64(full)
    while place < full:
        marks = np.uint8(0)
        last = min(place + BLOCK, full)
        for k in range(place, last):
            marks += peek(mapped, k)
        if marks < last - place:
            for k in range(place, last):
                if peek(mapped, k) == 0:
                    total, second = _add_range(total, second, values, words, k, k + 1)
        place = last
    _store_sum(total, second, words, d_default)
    return np.int64(-1)


@inline
def _add_listed(zero, values, width, full, chunks, unmapped, begins, ends, bad, d_default):
    """Add the values of the listed places, chunk by chunk, as soon as each is listed; up to a chunk that is bad."""
    total, second = zero, zero
    for chunk in range(chunks):
        while atomic_load(ends, chunk) < 0:
            pass
        if bad[chunk] >= 0:
            break
        total, second = _add_places(total, second, values, width, full, unmapped, begins[chunk], ends[chunk])
    _store_sum(total, second, width, d_default)


@kernel
def fill_grad_together(workers, chunks, reverse, values, full, width, sums, unmapped, begins, ends, d_values, d_default,
                       bad):  # fmt: skip
    """The same by several threads, for maps that ascend; returns -1, or a position where the map does not.

    `unmapped` is scratch, one place for each of the values and two for each chunk; `ends` is -1 for each chunk. The sum
    is one chain of additions, so one thread makes it, while the others list what there is to sum.
    """
    seen = enter(workers)
    size = reverse.size
    words, zero = known(width, 1), zeros1(sums)
    for part in share(workers, 0, chunks + 1):
        if part == chunks:  # the last, so that all lists are made, or being made by other threads
            _add_listed(zero, values, words, full, chunks, unmapped, begins, ends, bad, d_default)
            continue
        first, stop = chunk_start(part, chunks, size), chunk_start(part + 1, chunks, size)
        place = min(max(peek(reverse, first - 1) + 1, 0), full) if first > 0 else np.int64(0)
        begins[part] = place + 2 * part  # `_skip` writes up to two more than there are
        j, behind, _, _, listed = _gather(reverse, first, stop, full, values, words, d_values, place, zero, unmapped,
                                          begins[part])  # fmt: skip
        bad[part] = j if j < stop else -1
        if part == chunks - 1 and j == stop:
            _, _, listed = _skip(zero, zero, values, words, behind, full, unmapped, listed)
        atomic_add(ends, part, listed + 1)
    leave(workers, seen)
    return lowest(bad, chunks)


@kernel
def fill_grad_scattered(workers, chunks, reverse, values, width, sums, unmapped, begins, ends, mapped, d_values,
                        d_default, bad):  # fmt: skip
    """The same by several threads, for maps in any order; returns the first bad position, or -1.

    `mapped` is scratch, one byte for each of the values, `unmapped` one place for each and one more for each chunk.
    """
    seen = enter(workers)
    full, size = mapped.size, reverse.size
    words, zero = known(width, 1), zeros1(sums)
    for part in share(workers, 0, chunks):
        fill_range(mapped, chunk_start(part, chunks, full), chunk_start(part + 1, chunks, full), 0)
    for part in share(workers, 1, chunks):
        bad[part] = -1
        for j in range(chunk_start(part, chunks, size), chunk_start(part + 1, chunks, size)):
            place = peek(reverse, j)
            if place < 0 or place >= full:
                bad[part] = j
                break
            poke(mapped, place, 1)
            _copy_value(values, place, words, d_values, j)
    for part in share(workers, 2, chunks + 1):
        if part == chunks:
            _add_listed(zero, values, words, full, chunks, unmapped, begins, ends, bad, d_default)
            continue
        first, stop = chunk_start(part, chunks, full), chunk_start(part + 1, chunks, full)
        begins[part] = first + part  # each list writes one more than it has
        atomic_add(ends, part, _list_unmapped(mapped, first, stop, unmapped, begins[part]) + 1)
    leave(workers, seen)
    return lowest(bad, chunks)
