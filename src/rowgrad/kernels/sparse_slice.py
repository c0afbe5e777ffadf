"""Kernels of the slice operators: entries that lie in a window, and the way back.

Values are copied, never looked at: kernels see them as unsigned words of their size. Differences of indices
are taken modulo 2**64 and compared as unsigned numbers, which is exact for every window.
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.team import chunk_start, claim, enter, finish, leave, wait

MATCHED = 0


@inline
def _in_window(indices, i, rank, start, size):
    for d in range(rank):
        index = indices[i * rank + d]
        if index < start[d] or np.uint64(index - start[d]) >= np.uint64(size[d]):
            return False
    return True


@kernel
def count_window(team, chunks, indices, entries, rank, start, size, kept):
    """Count the entries in the window; `kept[chunk]` becomes their number before the chunk, the last the total."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        here = 0
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            here += _in_window(indices, i, rank, start, size)
        kept[chunk] = here
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        _add_up(kept, chunks)
        finish(team, 1)
    wait(team, 1, 1)
    leave(team, heard)


@inline
def _add_up(counts, chunks):
    """Turn counts into the sums of those before; the total goes behind the last."""
    total = 0
    for chunk in range(chunks):
        here = counts[chunk]
        counts[chunk] = total
        total += here
    counts[chunks] = total


@kernel
def copy_window(team, chunks, indices, entries, rank, start, size, kept, values, width, output_indices, output_values):
    """Copy the entries in the window, their indices counted from its start."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        place = kept[chunk]
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            if _in_window(indices, i, rank, start, size):
                for d in range(rank):
                    output_indices[place * rank + d] = indices[i * rank + d] - start[d]
                for w in range(width):
                    output_values[place * width + w] = values[i * width + w]
                place += 1
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)


@inline
def _in_box(inputs, i, rank, start, low, high):
    for d in range(rank):
        index = inputs[i * rank + d] - start[d]
        if index < low[d] or index > high[d]:
            return False
    return True


@inline
def _equal(inputs, i, outputs, j, rank, start):
    for d in range(rank):
        if inputs[i * rank + d] - start[d] != outputs[j * rank + d]:
            return False
    return True


@kernel
def find_matches(team, chunks, inputs, entries, outputs, selected, rank, start, low, high, kept, differ, info):
    """See whether the inputs in the box that the outputs span are the outputs, one by one, in order.

    Then the k-th input in the box is the one that output k came from, and `info[MATCHED]` becomes 1. A plain slice
    always is of this form; other subsequences have to be matched one after the other. `low` and `high` have room
    for a box per chunk; the first becomes the box of all.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        base = chunk * rank
        for d in range(rank):
            low[base + d] = np.iinfo(np.int64).max
            high[base + d] = np.iinfo(np.int64).min
        for j in range(chunk_start(chunk, chunks, selected), chunk_start(chunk + 1, chunks, selected)):
            for d in range(rank):
                low[base + d] = min(low[base + d], outputs[j * rank + d])
                high[base + d] = max(high[base + d], outputs[j * rank + d])
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        for chunk in range(1, chunks):
            for d in range(rank):
                low[d] = min(low[d], low[chunk * rank + d])
                high[d] = max(high[d], high[chunk * rank + d])
        finish(team, 1)
    wait(team, 1, 1)

    chunk = claim(team, 2)
    while chunk < chunks:
        here = 0
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            here += _in_box(inputs, i, rank, start, low, high)
        kept[chunk] = here
        finish(team, 2)
        chunk = claim(team, 2)
    wait(team, 2, chunks)
    if claim(team, 3) == 0:
        _add_up(kept, chunks)
        finish(team, 3)
    wait(team, 3, 1)

    chunk = claim(team, 4)
    while chunk < chunks:
        j = kept[chunk]
        differ[chunk] = kept[chunks] != selected
        if differ[chunk] == 0:
            for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
                if _in_box(inputs, i, rank, start, low, high):
                    if not _equal(inputs, i, outputs, j, rank, start):
                        differ[chunk] = 1
                        break
                    j += 1
        finish(team, 4)
        chunk = claim(team, 4)
    wait(team, 4, chunks)
    if claim(team, 5) == 0:
        info[MATCHED] = 1
        for chunk in range(chunks):
            if differ[chunk] != 0:
                info[MATCHED] = 0
        finish(team, 5)
    wait(team, 5, 1)
    leave(team, heard)


@kernel
def count_in_order(inputs, entries, outputs, selected, rank, start):
    """How many outputs find their input when each looks behind the one before."""
    j = 0
    for i in range(entries):
        if j < selected and _equal(inputs, i, outputs, j, rank, start):
            j += 1
    return j


@inline
def _move(forwards, i, j, source, width, target):
    for w in range(width):
        if forwards:
            target[j * width + w] = source[i * width + w]
        else:
            target[i * width + w] = source[j * width + w]


@kernel
def copy_matches(team, chunks, inputs, entries, rank, start, low, high, kept, forwards, source, width, target):
    """After `find_matches`: copy from outputs to their inputs, or, if `forwards`, from inputs to their outputs."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        j = kept[chunk]
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            if _in_box(inputs, i, rank, start, low, high):
                _move(forwards, i, j, source, width, target)
                j += 1
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    leave(team, heard)


@kernel
def copy_in_order(inputs, entries, outputs, selected, rank, start, forwards, source, width, target):
    """As `copy_matches`, for outputs that are matched one after the other."""
    j = 0
    for i in range(entries):
        if j < selected and _equal(inputs, i, outputs, j, rank, start):
            _move(forwards, i, j, source, width, target)
            j += 1
