"""Kernels that put the entries of a sparse tensor in order, and that renumber them for another shape.

Values are copied, never looked at: kernels see them as unsigned words of their size. Positions come from words that
this call has sorted; the caller's indices may change meanwhile, and are only ever copied.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

NEAR = 1 << 52  # numbers below this are exact in float64
BLOCK = 512  # indices that are numbered anew together


@inline
def _is_before(indices, left, right, rank):
    """Whether the index of entry `left` comes before that of `right`."""
    for axis in range(rank):
        one, other = peek(indices, left * rank + axis), peek(indices, right * rank + axis)
        if one != other:
            return one < other
    return False


@kernel
def survey(workers, chunks, indices, entries, rank, lowest_of, highest_of, falls):
    """The lowest and highest index of each axis, and whether a later entry belongs before an earlier one, by chunk."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        falls[chunk] = 0
        for i in range(max(first, 1), last):
            if _is_before(indices, i, i - 1, rank):
                falls[chunk] = 1
                break
        for axis in range(rank):
            low = high = peek(indices, first * rank + axis)
            for i in range(first + 1, last):
                here = peek(indices, i * rank + axis)
                low, high = min(low, here), max(high, here)
            lowest_of[chunk * rank + axis], highest_of[chunk * rank + axis] = low, high
    leave(workers, seen)


@kernel
def make_keys(workers, chunks, indices, entries, rank, lows, spans, keys):
    """Number each index by its place among all that lie between `lows` and `lows` + `spans`.

    An index that has changed since `survey` is bounded, so that no key is too large.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            key = np.int64(0)
            for axis in range(rank):
                here = peek(indices, i * rank + axis) - lows[axis]
                key = key * spans[axis] + min(max(here, 0), spans[axis] - 1)
            poke(keys, i, key)
    leave(workers, seen)


@kernel
def take_entries(workers, chunks, words, mask, indices, rank, values, width, output_indices, output_values):
    """Entry k of the output is the entry at the position in words[k]."""
    seen = enter(workers)
    size = words.size
    for chunk in share(workers, 0, chunks):
        for k in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            position = peek(words, k) & mask
            for axis in range(rank):
                poke(output_indices, k * rank + axis, peek(indices, position * rank + axis))
            for word in range(width):
                poke(output_values, k * width + word, peek(values, position * width + word))
    leave(workers, seen)


@kernel
def send_back(workers, chunks, words, mask, values, width, output):
    """The entry at the position in words[k] gets value k."""
    seen = enter(workers)
    size = words.size
    for chunk in share(workers, 0, chunks):
        for k in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            position = peek(words, k) & mask
            for word in range(width):
                poke(output, position * width + word, peek(values, k * width + word))
    leave(workers, seen)


@inline
def _renumber_far(indices, i, rank, strides, new_rank, new_strides, output):
    """One index by division, which any number can be divided by."""
    place = np.int64(0)
    for axis in range(rank):
        place += peek(indices, i * rank + axis) * peek(strides, axis)
    for axis in range(new_rank):
        stride = peek(new_strides, axis)
        part = abs(place) // stride  # towards 0, as in C
        part = part if place >= 0 else -part
        poke(output, i * new_rank + axis, part)
        place -= part * stride


@inline
def _renumber_near(indices, first, last, strides, new_strides, output):
    """Indices of two dimensions, in both shapes, by products with reciprocals; tells whether one is too far for that.

    Places are below 2**52, so that a quotient is off by one at most. (LLVM vectorises this loop.)
    """
    row, stride = peek(strides, 0), peek(new_strides, 0)
    part_of_one = 1.0 / np.float64(stride)
    is_far = False
    for i in range(first, last):
        place = peek(indices, 2 * i) * row + peek(indices, 2 * i + 1)
        is_far |= (place < 0) | (place >= NEAR)
        part = np.int64(np.float64(place) * part_of_one)
        rest = place - part * stride
        lower, higher = np.int64(rest < 0), np.int64(rest >= stride)
        poke(output, 2 * i, part - lower + higher)
        poke(output, 2 * i + 1, rest + (lower - higher) * stride)
    return is_far


@kernel
def renumber(workers, chunks, indices, entries, rank, strides, new_rank, new_strides, output):
    """The same places in another shape: the number of each, in the order of rows, cut into its new parts."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        while first < stop:
            last = min(first + BLOCK, stop)
            if rank != 2 or new_rank != 2 or _renumber_near(indices, first, last, strides, new_strides, output):
                for i in range(first, last):
                    _renumber_far(indices, i, rank, strides, new_rank, new_strides, output)
            first = last
    leave(workers, seen)
