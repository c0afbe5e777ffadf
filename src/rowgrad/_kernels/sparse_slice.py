"""Kernels of the slice operators: entries that lie in a window, and the way back.

Values are copied, never looked at: kernels see them as unsigned words of their size. Differences of indices are
taken modulo 2**64.

A call that is not large is one thread's (`count_window`, `copy_window`, `send`), without the counters that threads
share work by; the kernels for several threads (`…_together`) are made of the same parts. Two columns and values of one
word, which most calls have, are told by None (see `known`).
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import count, load, store, zeros16
from rowgrad._kernels.raw import known, peek, poke
from rowgrad._kernels.sharing import add_up, chunk_start, enter, leave, share

NEAR = 1000
FEW = 4
BLOCK = 16


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


@inline
def _count_rank(indices, first, stop, rank, start, size):
    if rank is None:
        return _count(indices, first, stop, 2, _pair(start), _pair(size))
    return _count(indices, first, stop, rank, start, size)


@kernel
def count_window(indices, entries, rank, shape, start, size, output_shape, window):
    """Count the entries in the window, and tell its shape, cut where it reaches past the tensor.

    `window` becomes the size that counts, which is at least 0. Returns -1 for a negative size of the tensor or, unless
    the window lies past the tensor anyway, of the window. No difference of sizes here can overflow.
    """
    for d in range(shape.size):
        whole, begin, wanted = shape[d], start[d], size[d]
        window[d] = max(wanted, 0)
        if whole < 0:
            return np.int64(-1)
        if wanted < 0:  # is begin < whole - wanted?
            if begin < whole or begin - whole <= -(wanted + 1):
                return np.int64(-1)
            output_shape[d] = 0
        elif begin < whole - wanted:
            output_shape[d] = wanted
        else:
            output_shape[d] = max(whole - begin, 0)
    return _count_rank(indices, 0, entries, rank, start, window)


@kernel
def count_window_together(workers, chunks, indices, entries, rank, start, size, kept):
    """Count the entries in the window; `kept[chunk]` becomes their number before the chunk, the last the total."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        kept[chunk] = _count_rank(indices, first, stop, rank, start, size)
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


@inline
def _copy_rank(indices, first, stop, rank, start, size, place, end, values, width, output_indices, output_values):
    if rank is None:
        _copy(indices, first, stop, 2, _pair(start), _pair(size), place, end, values, 1, output_indices, output_values)
    else:
        _copy(indices, first, stop, rank, start, size, place, end, values, width, output_indices, output_values)


@kernel
def copy_window(indices, entries, rank, start, size, total, values, width, output_indices, output_values):
    """Copy the `total` entries in the window, their indices counted from its start."""
    _copy_rank(indices, 0, entries, rank, start, size, 0, total, values, width, output_indices, output_values)


@kernel
def copy_window_together(
    workers, chunks, indices, entries, rank, start, size, kept, values, width, output_indices, output_values
):
    """The same by several threads; `kept` tells how many of them lie before each chunk."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)
        _copy_rank(indices, first, stop, rank, start, size, kept[chunk], kept[chunk + 1], values, width, output_indices,
                   output_values)  # fmt: skip
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


@intrinsic
def _difference(typingctx, inputs, i, outputs, j, start):
    """0 if a block of inputs from i on equals the outputs from j on plus `start`, of two columns each; by vectors."""
    lanes = 2 * BLOCK

    def codegen(context, builder, signature, args):
        word, number = ir.IntType(64), ir.IntType(32)
        vector = ir.VectorType(word, lanes)
        begin = ir.Constant(vector, ir.Undefined)
        for lane in range(lanes):
            begin = builder.insert_element(begin, builder.extract_value(args[4], lane % 2), number(lane))
        found = []
        for kind, array, position in ((inputs, args[0], args[1]), (outputs, args[2], args[3])):
            data = context.make_array(kind)(context, builder, array).data
            pointer = builder.gep(data, [builder.mul(position, word(2))])
            found.append(builder.load(builder.bitcast(pointer, vector.as_pointer()), align=8))
        different = builder.xor(builder.sub(found[0], begin), found[1])
        kind = ir.FunctionType(word, [vector])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.or.v{lanes}i64")
        return builder.call(reduce, [different])

    return types.int64(inputs, types.int64, outputs, types.int64, start), codegen


@inline
def _send_back_pairs(inputs, first, stop, outputs, selected, start, j, source, target):
    """The same for two columns and one word, by turns: zeros up to the next output, then values up to a mismatch.

    Behind a few matches, whole blocks are tried.
    """
    i = first
    while j < selected:
        row, column = peek(outputs, 2 * j) + start[0], peek(outputs, 2 * j + 1) + start[1]
        while i < stop and (peek(inputs, 2 * i) ^ row) | (peek(inputs, 2 * i + 1) ^ column) != 0:
            poke(target, i, 0)
            i += 1
        if i == stop:
            return j
        matches = 0
        while i < stop and j < selected and _is_output(inputs, i, outputs, j, 2, start):
            poke(target, i, peek(source, j))
            i += 1
            j += 1
            matches += 1
            if matches == FEW:
                while i + BLOCK <= stop and j + BLOCK <= selected and _difference(inputs, i, outputs, j, start) == 0:
                    for k in range(0, BLOCK, count(zeros16(source))):
                        store(target, i + k, load(zeros16(source), source, j + k))
                    i += BLOCK
                    j += BLOCK
    for left in range(i, stop):
        poke(target, left, 0)
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


@inline
def _send(inputs, first, stop, outputs, selected, rank, start, j, forwards, source, width, target):
    if forwards is not None:
        return _send_forth(inputs, first, stop, outputs, selected, known(rank, 2), start, j, source, known(width, 1),
                           target)  # fmt: skip
    if rank is None:
        return _send_back_pairs(inputs, first, stop, outputs, selected, _pair(start), j, source, target)
    return _send_back(inputs, first, stop, outputs, selected, rank, start, j, source, known(width, 1), target)


@kernel
def send(inputs, entries, outputs, selected, rank, start, forwards, source, width, target):
    """Copy from outputs to the inputs that they came from (others get 0), or, unless `forwards` is None, the other way.

    Returns how many outputs found their input, each behind the one before.
    """
    return _send(inputs, 0, entries, outputs, selected, rank, start, np.int64(0), forwards, source, width, target)


@kernel
def send_together(workers, chunks, inputs, entries, outputs, selected, rank, start, begins, starts, ends, forwards,
                  source, width, target):  # fmt: skip
    """The same by several threads.

    Where a chunk's outputs begin is guessed by a search for sorted indices; the guesses were right if each chunk ends
    where the next one begins. If not, -1 is returned, and the call has to be made again by one thread, which needs no
    guess. `begins`, `starts` and `ends` are scratch, with one element more than there are chunks.
    """
    seen = enter(workers)
    for _ in share(workers, 0, 1):
        starts[0] = 0
        begins[0] = 0
        begins[chunks] = entries
        for chunk in range(1, chunks):
            begins[chunk] = chunk_start(chunk, chunks, entries)
            if known(rank, 2) > 0:
                begins[chunk] = max(begins[chunk - 1], _row_start(inputs, begins[chunk], entries, known(rank, 2)))
            starts[chunk] = _outputs_before(inputs, begins[chunk], outputs, selected, known(rank, 2), start)

    for chunk in share(workers, 1, chunks):
        ends[chunk] = _send(inputs, begins[chunk], begins[chunk + 1], outputs, selected, rank, start, starts[chunk],
                            forwards, source, width, target)  # fmt: skip
    for chunk in range(1, chunks):
        if ends[chunk - 1] != starts[chunk]:
            leave(workers, seen)
            return np.int64(-1)
    leave(workers, seen)
    return ends[chunks - 1]
