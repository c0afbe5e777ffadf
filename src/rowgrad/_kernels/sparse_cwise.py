"""Kernels between a sparse tensor and a dense one, at the places of the entries."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import copy, copy_nontemporal, count, first_of, load, store, zeros, zeros64
from rowgrad._kernels.raw import known, peek, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share

ADD, MULTIPLY, DIVIDE, TAKE = range(4)
OUTSIDE = -2  # an index is out of range
BLOCK = 1024  # elements that are copied, then added to
AHEAD, AHEAD_ENTRIES = 2 * BLOCK, 64  # how far ahead elements and entries are fetched


@intrinsic
def _computed(typingctx: Any, kind: Any, left: Any, right: Any) -> Any:
    """Lane by lane; integers are divided towards 0. A lane that would be divided by 0 must not come here."""
    operation = kind.ndim - 1

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, one, other = args
        if operation == TAKE:
            return other
        if isinstance(left.dtype, types.Integer):
            divide = "sdiv" if left.dtype.signed else "udiv"
            return getattr(builder, ("add", "mul", divide)[operation])(one, other)
        return getattr(builder, ("fadd", "fmul", "fdiv")[operation])(one, other)

    return left(kind, left, right), codegen


@inline
def _is_lowest_by_minus_one(values, i, dense, place, one):
    """Whether a division of integers would overflow, which ends a process."""
    return first_of(load(one, dense, place)) == -1 and first_of(load(one, values, i)) < 0


@inline
def _place(indices, i, rank, strides, limits):
    """The place of entry i in a dense tensor, bounded after it was read; and whether its index is out of range."""
    place, is_out = np.int64(0), False
    for axis in range(known(rank, 2)):
        here = peek(indices, i * known(rank, 2) + axis)
        is_out |= bool(np.uint64(here) >= np.uint64(peek(limits, axis)))
        place += here * peek(strides, axis)
    return np.int64(0) if is_out else place, is_out


@kernel
def combine(workers, chunks, indices, rank, strides, limits, values, dense, kind, lanes_for, output, bad):
    """Value i and the element of `dense` at its place.

    Returns -1, or OUTSIDE if an index is not within `limits`, or the first entry that would be divided by 0. `rank` is
    None for two dimensions.
    """
    seen = enter(workers)
    size = output.size // count(zeros(lanes_for))
    one = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        wrong, zero = False, np.int64(-1)
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            place, is_out = _place(indices, i, rank, strides, limits)
            wrong |= is_out
            right = load(one, dense, place * count(one))
            if kind.ndim - 1 == DIVIDE:
                if first_of(right) == 0:
                    zero = np.int64(i) if zero < 0 else zero
                    continue
                if _is_lowest_by_minus_one(values, i, dense, place, one):
                    store(output, i, one - load(one, values, i))
                    continue
            store(output, i * count(one), _computed(kind, load(one, values, i * count(one)), right))
        bad[chunk] = OUTSIDE if wrong else zero
    found = lowest(bad, chunks)
    for chunk in range(chunks):
        if bad[chunk] == OUTSIDE:
            found = np.int64(OUTSIDE)
    leave(workers, seen)
    return found


@inline
def _add_at(one, output, place, values, i):
    at = place * count(one)
    store(output, at, load(one, output, at) + load(one, values, i * count(one)))


@kernel
def add_few(indices, rank, strides, limits, values, dense, lanes_for, output):
    """The same as `add_entries`, by one thread."""
    one, wrong = zeros(lanes_for), False
    size = indices.size // known(rank, 2)
    for i in range(size):
        wrong |= _place(indices, i, rank, strides, limits)[1]
    if wrong:
        return True
    copy(zeros64(output), dense, 0, output, 0, output.size)
    for i in range(size):
        place, is_out = _place(indices, i, rank, strides, limits)
        wrong |= is_out  # another thread may have written to it
        _add_at(one, output, place, values, i)
    return wrong


@kernel
def add_ascending(
    workers, chunks, indices, rank, strides, limits, values, dense, lanes_for, buffers, output, nontemporal, counts
):
    """`dense`, or zeros if it is None, plus each value at its place; False, and no use, unless all entries ascend.

    Each thread has a part of the output. Blocks are made in `buffers`, with room for one per chunk, which are in the
    cache, and copied; non-temporal stores do not read the output first. `counts` has room for a number per chunk.
    """
    seen = enter(workers)
    one = zeros(lanes_for)
    size, length = indices.size // known(rank, 2), output.size // count(one)
    blocks = (length + BLOCK - 1) // BLOCK
    for strip in share(workers, 0, chunks):
        low = chunk_start(strip, chunks, blocks) * BLOCK
        high = min(chunk_start(strip + 1, chunks, blocks) * BLOCK, length)
        entry, last = np.int64(0), size
        while entry < last:  # the first entry of the strip
            middle = (entry + last) // 2
            if _place(indices, middle, rank, strides, limits)[0] < low:
                entry = middle + 1
            else:
                last = middle
        first, before, wrong = entry, low, False
        while low < high and not wrong:
            stop, buffer = min(low + BLOCK, high), strip * BLOCK
            at, here = low * count(one), (stop - low) * count(one)
            copy(zeros64(output), dense, at, buffers, buffer * count(one), here)
            while entry < size:
                place, is_out = _place(indices, entry, rank, strides, limits)
                wrong = is_out | (place < before)
                if wrong | (place >= stop):
                    break
                _add_at(one, buffers, buffer + place - low, values, entry)
                prefetch(indices, (entry + AHEAD_ENTRIES) * known(rank, 2))
                if dense is not None:
                    prefetch(dense, (place + AHEAD) * count(one))
                before = place
                entry += 1
            if nontemporal:
                copy_nontemporal(zeros64(output), buffers, buffer * count(one), output, at, here)
            else:
                copy(zeros64(output), buffers, buffer * count(one), output, at, here)
            low = stop
        counts[strip] = -size - 1 if wrong else entry - first
    total = np.int64(0)
    for strip in range(chunks):
        total += counts[strip]
    leave(workers, seen)
    return total == size


@kernel
def add_entries(workers, chunks, indices, rank, strides, limits, values, dense, lanes_for, places, output, bad):
    """`dense`, or zeros if it is None, plus each value at its place, in their order; tells whether an index is outside.

    Nothing is written then. Each thread has a part of the output, and looks at all entries. `places` has room for one
    an entry.
    """
    seen = enter(workers)
    one = zeros(lanes_for)
    size, length = places.size, output.size // count(one)
    for chunk in share(workers, 0, chunks):
        wrong = False
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            place, is_out = _place(indices, i, rank, strides, limits)
            wrong |= is_out
            poke(places, i, place)
        bad[chunk] = wrong
    is_bad = False
    for chunk in range(chunks):
        is_bad |= bad[chunk] != 0
    for strip in share(workers, 1, 0 if is_bad else chunks):
        low, high = chunk_start(strip, chunks, length), chunk_start(strip + 1, chunks, length)
        at = low * count(one)
        copy(zeros64(output), dense, at, output, at, (high - low) * count(one))
        for i in range(size):
            if low <= peek(places, i) < high:
                _add_at(one, output, peek(places, i), values, i)
    leave(workers, seen)
    return is_bad
