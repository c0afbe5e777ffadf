"""Kernels between a sparse tensor and a dense one, at the places of the entries, which `sparse_reduce.locate` finds.

Places belong to the call, and are within the dense tensor.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import count, first_of, load, store, zeros
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share

ADD, MULTIPLY, DIVIDE, TAKE = range(4)


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


@kernel
def combine(workers, chunks, places, values, dense, kind, lanes_for, output, bad):
    """Value i and the element of `dense` at places[i]; returns the first entry that would be divided by 0, or -1."""
    seen = enter(workers)
    size = places.size
    one = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        bad[chunk] = -1
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            place = peek(places, i) * count(one)
            right = load(one, dense, place)
            if kind.ndim - 1 == DIVIDE:
                if first_of(right) == 0:
                    bad[chunk] = i if bad[chunk] < 0 else bad[chunk]
                    continue
                if _is_lowest_by_minus_one(values, i, dense, place, one):
                    store(output, i, one - load(one, values, i))
                    continue
            store(output, i * count(one), _computed(kind, load(one, values, i * count(one)), right))
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found


@kernel
def add_at(workers, chunks, strips, places, values, lanes_for, output, length):
    """Add each value to the element at its place, in their order; each thread has some of the places."""
    seen = enter(workers)
    one = zeros(lanes_for)
    for strip in share(workers, 0, strips):
        low, high = chunk_start(strip, strips, length), chunk_start(strip + 1, strips, length)
        for i in range(places.size):
            place = peek(places, i)
            if low <= place < high:
                at = place * count(one)
                store(output, at, load(one, output, at) + load(one, values, i * count(one)))
    leave(workers, seen)
