"""Kernels of the slice operators: entries that lie in a window, and the way back.

Values are copied, never looked at: kernels see them as unsigned words of their size. Differences of indices are
taken modulo 2**64.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import add_up, chunk_start, enter, leave, share

NEAR = 1000


@inline
def _pair(array):
    """Two numbers that stay in registers, where an array might change with every store, for all that LLVM knows."""
    return array[0], array[1]


@inline
def _in_window(indices, i, rank, start, size):
    """Whether start ≤ index < start + size in every dimension; exact for every start and size."""
    inside = True
    for d in range(rank):
        index = peek(indices, i * rank + d)
        inside &= (index >= start[d]) & (np.uint64(index - start[d]) < np.uint64(size[d]))
    return inside


@inline
def _count(indices, first, stop, rank, start, size):
    inside = np.int64(0)
    for i in range(first, stop):
        inside += _in_window(indices, i, rank, start, size)
    return inside


@kernel
def count_window(workers, chunks, indices, entries, rank, start, size, kept):
    """Count the entries in the window; `kept[chunk]` becomes their number before the chunk, the last the total."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        if rank == 2:
            kept[chunk] = _count(indices, first, stop, 2, _pair(start), _pair(size))
        else:
            kept[chunk] = _count(indices, first, stop, rank, start, size)
    for _ in share(workers, 1, 1):
        kept[chunks] = add_up(kept, chunks)
    leave(workers, seen)


@inline
def _copy(indices, first, stop, rank, start, size, place, end, values, width, output_indices, output_values):
    """Write every entry to the next place, and go on from there only if it is inside, which no branch could predict.

    Where another thread has changed the indices since they were counted, fewer may be found: the rest is zeroed.
    """
    for i in range(first, stop):
        if place == end:  # all are found; what follows is another chunk's
            break
        for d in range(rank):
            poke(output_indices, place * rank + d, peek(indices, i * rank + d) - start[d])
        for w in range(width):
            poke(output_values, place * width + w, peek(values, i * width + w))
        place += _in_window(indices, i, rank, start, size)
    for left in range(place, end):
        for d in range(rank):
            poke(output_indices, left * rank + d, 0)
        for w in range(width):
            poke(output_values, left * width + w, 0)


@kernel
def copy_window(
    workers, chunks, indices, entries, rank, start, size, kept, values, width, output_indices, output_values
):
    """Copy the entries in the window, their indices counted from its start."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        if rank == 2 and width == 1:
            _copy(indices, first, stop, 2, _pair(start), _pair(size), kept[chunk], kept[chunk + 1], values, 1,
                  output_indices, output_values)  # fmt: skip
        else:
            _copy(indices, first, stop, rank, start, size, kept[chunk], kept[chunk + 1], values, width,
                  output_indices, output_values)  # fmt: skip
    leave(workers, seen)


@inline
def _row_start(inputs, i, entries, rank):
    """The next input, not far from i, that begins a row, else i: entries of a row may come in any order."""
    for near in range(i, min(i + NEAR, entries)):
        if inputs[near * rank] != inputs[(near - 1) * rank]:
            return near
    return i


@inline
def _outputs_before(inputs, i, outputs, selected, rank, start):
    """How many outputs lie before input i, if both are sorted; any answer will do otherwise, for it is checked."""
    if rank > 0 and inputs[i * rank] != inputs[(i - 1) * rank]:
        depth = 1  # it begins a row, and all outputs of that row lie behind
    else:
        depth = rank
    low, high = np.int64(0), np.int64(selected)
    while low < high:
        middle = (low + high) // 2
        before = False
        for d in range(depth):
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
def _is_output(inputs, i, outputs, j, rank, start):
    for d in range(rank):
        if peek(inputs, i * rank + d) - start[d] != peek(outputs, j * rank + d):
            return False
    return True


@inline
def _send_back(inputs, first, stop, outputs, selected, rank, start, j, source, width, target):
    """Give each input that is the next output, from j on, its value, others 0; returns the next j."""
    for i in range(first, stop):
        if j < selected and _is_output(inputs, i, outputs, j, rank, start):
            for w in range(width):
                poke(target, i * width + w, peek(source, j * width + w))
            j += 1
        else:
            for w in range(width):
                poke(target, i * width + w, 0)
    return j


@inline
def _send_forth(inputs, first, stop, outputs, selected, rank, start, j, source, width, target):
    """Give each output from j on the value of the input that it is; returns the next j."""
    for i in range(first, stop):
        if j < selected and _is_output(inputs, i, outputs, j, rank, start):
            for w in range(width):
                poke(target, j * width + w, peek(source, i * width + w))
            j += 1
    return j


@kernel
def send(workers, chunks, inputs, entries, outputs, selected, rank, start, begins, starts, ends, forwards, source,
         width, target):  # fmt: skip
    """Copy from outputs to the inputs that they came from (others get 0), or, if `forwards`, the other way.

    Returns how many outputs found their input, each behind the one before. Where a chunk's outputs begin is guessed
    by a search for sorted indices; the guesses were right if each chunk ends where the next one begins. If not, -1
    is returned, and the call has to be made again with a single chunk, which needs no guess. `begins`, `starts` and
    `ends` are scratch, with one element more than there are chunks.
    """
    seen = enter(workers)
    for _ in share(workers, 0, 1):
        starts[0] = 0
        begins[0] = 0
        begins[chunks] = entries
        for chunk in range(1, chunks):
            begins[chunk] = chunk_start(chunk, chunks, entries)
            if rank > 0:
                begins[chunk] = max(begins[chunk - 1], _row_start(inputs, begins[chunk], entries, rank))
            starts[chunk] = _outputs_before(inputs, begins[chunk], outputs, selected, rank, start)

    for chunk in share(workers, 1, chunks):
        first, stop = begins[chunk], begins[chunk + 1]
        if forwards:
            end = _send_forth(inputs, first, stop, outputs, selected, rank, start, starts[chunk], source, width,
                              target)  # fmt: skip
        elif rank == 2 and width == 1:
            end = _send_back(inputs, first, stop, outputs, selected, 2, _pair(start), starts[chunk], source, 1, target)
        else:
            end = _send_back(inputs, first, stop, outputs, selected, rank, start, starts[chunk], source, width, target)
        ends[chunk] = end
    for chunk in range(1, chunks):
        if ends[chunk - 1] != starts[chunk]:
            leave(workers, seen)
            return np.int64(-1)
    leave(workers, seen)
    return ends[chunks - 1]
