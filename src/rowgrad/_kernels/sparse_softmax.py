"""The kernel of softmax by groups of entries that are in order."""

import math

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.lanes import fill, first_of, load, store, zeros, zeros1
from rowgrad._kernels.sharing import chunk_start, enter, leave, share
from rowgrad._kernels.sparse_reduce import _reduce_leaf


@kernel
def softmax(workers, chunks, starts, values, add, larger, larger_later, begins, lanes_for, powers, output):
    """The exponential of each value, less the largest of its group, over the sum of those of the group.

    `begins` has where the largest and the sum begin, `powers` room for the exponentials.
    """
    seen = enter(workers)
    groups = starts.size - 1
    lanes = zeros(lanes_for)
    one = zeros1(lanes_for)
    for chunk in share(workers, 0, chunks):
        for group in range(chunk_start(chunk, chunks, groups), chunk_start(chunk + 1, chunks, groups)):
            first, last = starts[group], starts[group + 1]
            largest = first_of(_reduce_leaf(larger, larger_later, begins, lanes, one, values, first, last - first))
            for i in range(first, last):
                powers[i] = math.exp(first_of(load(one, values, i)) - largest)
            total = _reduce_leaf(add, add, begins[1:], lanes, one, powers, first, last - first)
            for i in range(first, last):
                store(output, i, fill(one, powers[i]) / total)
    leave(workers, seen)
