"""Kernels of the slice operators: entries that lie in a window, and the way back.

Values are copied, never looked at: kernels see them as unsigned words of their size. Which entries are kept is as
good as random, so nothing here branches on it. Differences of indices are taken modulo 2**64.
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.raw import peek, poke
from rowgrad.kernels.team import chunk_start, claim, enter, finish, leave, wait

MATCHED = 0


@inline
def _in_window(indices, i, rank, start, size):
    """Whether start ≤ index < start + size in every dimension; exact for every start and size."""
    inside = True
    for d in range(rank):
        index = peek(indices, i * rank + d)
        inside &= (index >= peek(start, d)) & (np.uint64(index - peek(start, d)) < np.uint64(peek(size, d)))
    return inside


@inline
def _count(indices, first, stop, rank, start, size):
    inside = np.int64(0)
    for i in range(first, stop):
        inside += _in_window(indices, i, rank, start, size)
    return inside


@kernel
def count_window(team, chunks, indices, entries, rank, start, size, kept):
    """Count the entries in the window; `kept[chunk]` becomes their number before the chunk, the last the total."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        # As a constant, the rank costs no loop.
        if rank == 2:
            kept[chunk] = _count(indices, first, stop, 2, start, size)
        else:
            kept[chunk] = _count(indices, first, stop, rank, start, size)
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        total = np.int64(0)
        for chunk in range(chunks):
            here = kept[chunk]
            kept[chunk] = total
            total += here
        kept[chunks] = total
        finish(team, 1)
    wait(team, 1, 1)
    leave(team, heard)


@inline
def _copy(indices, first, stop, rank, start, size, place, end, values, width, output_indices, output_values):
    """Write every entry to the next place, and go on from there only if it is inside."""
    for i in range(first, stop):
        if place == end:  # all are found; what follows is another chunk's
            break
        for d in range(rank):
            poke(output_indices, place * rank + d, peek(indices, i * rank + d) - peek(start, d))
        for w in range(width):
            poke(output_values, place * width + w, peek(values, i * width + w))
        place += _in_window(indices, i, rank, start, size)


@kernel
def copy_window(team, chunks, indices, entries, rank, start, size, kept, values, width, output_indices, output_values):
    """Copy the entries in the window, their indices counted from its start."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        if rank == 2 and width == 1:
            _copy(indices, first, stop, 2, start, size, kept[chunk], kept[chunk + 1], values, 1, output_indices,
                  output_values)  # fmt: skip
        else:
            _copy(indices, first, stop, rank, start, size, kept[chunk], kept[chunk + 1], values, width,
                  output_indices, output_values)  # fmt: skip
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)


@inline
def _find_box(outputs, first, stop, rank, low, high, base):
    """The smallest box around the outputs from `first` to `stop`."""
    for d in range(rank):
        least = np.iinfo(np.int64).max
        most = np.iinfo(np.int64).min
        for j in range(first, stop):
            least = min(least, peek(outputs, j * rank + d))
            most = max(most, peek(outputs, j * rank + d))
        low[base + d] = least
        high[base + d] = most


@inline
def _outputs_before(inputs, i, outputs, selected, rank, start):
    """How many outputs lie before input i, if both are sorted; any answer will do otherwise, for it is checked."""
    low, high = np.int64(0), np.int64(selected)
    while low < high:
        middle = (low + high) // 2
        before = False
        for d in range(rank):
            index = inputs[i * rank + d] - start[d]
            if outputs[middle * rank + d] != index:
                before = outputs[middle * rank + d] < index
                break
        if before:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _send_box(inputs, first, stop, outputs, selected, rank, start, low, high, j, forwards, source, width, target):
    """Copy between the inputs in the box and the outputs from j on; returns the next j, or -1 if some are no pairs."""
    differ = False
    for i in range(first, stop):
        inside = True
        same = True
        at = min(j, selected - 1)
        for d in range(rank):
            index = peek(inputs, i * rank + d) - peek(start, d)
            inside &= (index >= peek(low, d)) & (index <= peek(high, d))
            same &= index == peek(outputs, at * rank + d)
        differ |= inside & ((not same) | (j >= selected))
        for w in range(width):
            if forwards:
                if inside:
                    poke(target, at * width + w, peek(source, i * width + w))
            else:
                word = peek(source, at * width + w)
                poke(target, i * width + w, word if inside else word ^ word)
        j += inside
    return np.int64(-1) if differ else j


@kernel
def send_matches(team, chunks, inputs, entries, outputs, selected, rank, start, low, high, starts, forwards, source,
                 width, target, info):  # fmt: skip
    """Copy from outputs to the inputs that they came from (others get 0), or, if `forwards`, the other way.

    This works if the inputs in the box that the outputs span are the outputs, one by one, in order, as they are for
    every slice; then `info[MATCHED]` becomes 1. Otherwise `target` is not to be used: other subsequences have to be
    matched one after the other. Where a chunk's outputs begin is guessed by a search for sorted indices; the
    guesses are right if each chunk ends where the next one begins. There must be at least one output.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first, stop = chunk_start(chunk, chunks, selected), chunk_start(chunk + 1, chunks, selected)
        _find_box(outputs, first, stop, rank, low, high, chunk * rank)
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        for chunk in range(1, chunks):
            for d in range(rank):
                low[d] = min(low[d], low[chunk * rank + d])
                high[d] = max(high[d], high[chunk * rank + d])
        starts[0] = 0
        for chunk in range(1, chunks):
            starts[chunk] = _outputs_before(inputs, chunk_start(chunk, chunks, entries), outputs, selected, rank, start)
        starts[chunks] = selected
        finish(team, 1)
    wait(team, 1, 1)

    chunk = claim(team, 2)
    while chunk < chunks:
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        if rank == 2 and width == 1:
            end = _send_box(inputs, first, stop, outputs, selected, 2, start, low, high, starts[chunk], forwards,
                            source, 1, target)  # fmt: skip
        else:
            end = _send_box(inputs, first, stop, outputs, selected, rank, start, low, high, starts[chunk], forwards,
                            source, width, target)  # fmt: skip
        starts[chunks + 1 + chunk] = end == starts[chunk + 1]
        finish(team, 2)
        chunk = claim(team, 2)
    wait(team, 2, chunks)
    if claim(team, 3) == 0:
        info[MATCHED] = 1
        for chunk in range(chunks):
            if starts[chunks + 1 + chunk] == 0:
                info[MATCHED] = 0
        finish(team, 3)
    wait(team, 3, 1)
    leave(team, heard)


@inline
def _equal(inputs, i, outputs, j, rank, start):
    for d in range(rank):
        if inputs[i * rank + d] - start[d] != outputs[j * rank + d]:
            return False
    return True


@kernel
def count_in_order(inputs, entries, outputs, selected, rank, start):
    """How many outputs find their input when each looks behind the one before."""
    j = 0
    for i in range(entries):
        if j < selected and _equal(inputs, i, outputs, j, rank, start):
            j += 1
    return j


@kernel
def send_in_order(inputs, entries, outputs, selected, rank, start, forwards, source, width, target):
    """As `send_matches`, for outputs that are matched one after the other; `target` is zero at the start."""
    j = 0
    for i in range(entries):
        if j < selected and _equal(inputs, i, outputs, j, rank, start):
            for w in range(width):
                if forwards:
                    target[j * width + w] = source[i * width + w]
                else:
                    target[i * width + w] = source[j * width + w]
            j += 1
