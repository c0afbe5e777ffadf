"""Kernels of the gradients of plain segment reductions: what a segment got goes back to its rows.

Rows with a negative id got nothing, and give nothing. Ids past the end are looked for first; then each id is bounded
again when it is used.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import block_start, count, fill, load, store, take_last, zeros
from rowgrad._kernels.raw import fill_range, peek
from rowgrad._kernels.segments import divided, past_the_end
from rowgrad._kernels.sharing import chunk_start, enter, leave, share


@intrinsic
def where_equal(typingctx: Any, left: Any, right: Any, yes: Any, no: Any) -> Any:
    """`yes` in each lane where `left` and `right` are equal, else `no`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        is_integer = isinstance(left.dtype, types.Integer)
        compare = builder.icmp_signed if is_integer else builder.fcmp_ordered
        return builder.select(compare("==", args[0], args[1]), args[2], args[3])

    return yes(left, right, yes, no), codegen


@inline
def _add(lanes, totals, start, column, here, value):
    """Add to a block of totals; columns that the block before has done stay as they are."""
    total = load(lanes, totals, start + here)
    store(totals, start + here, take_last(total + value, total, count(lanes) - (column - here)))


@kernel
def take_rows(workers, chunks, ids, rows, grad, width, divisors, lanes_for, output, bad):
    """output[i] = grad[ids[i]], over the divisor of that row, if there are any; 0 for negative ids.

    Returns -1, or a position before the first id past `rows`, in which case nothing is written.
    """
    seen = enter(workers)
    size = ids.size
    lanes = zeros(lanes_for)
    wrong = past_the_end(workers, chunks, ids, rows, bad)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for chunk in share(workers, 1, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            row = peek(ids, i)
            if 0 <= row < rows:
                divisor = fill(lanes, divisors[row] if divisors.size > 0 else 1)
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    value = load(lanes, grad, row * width + here)
                    if divisors.size > 0:
                        value = divided(value, divisor)
                    store(output, i * width + here, value)
            else:
                fill_range(output, i * width, (i + 1) * width, 0)
    leave(workers, seen)
    return np.int64(-1)


@kernel
def max_grad(workers, chunks, strips, ids, rows, data, best, values, width, backward, lanes_for, counts, totals, output,
             bad):  # fmt: skip
    """Share the gradient of each element of `best` among the rows of `data` that are equal to it.

    Forward, `values` are the gradients of the rows, and each element of the output gets the mean of those that are
    equal. `counts` and `totals` have room for as much as `best`, in the type that sums are made in; backward, `totals`
    is not used. Returns -1, or a position before the first id past `rows`, in which case nothing is written.
    """
    seen = enter(workers)
    size = ids.size
    lanes = zeros(lanes_for)
    one = fill(lanes, 1)
    wrong = past_the_end(workers, chunks, ids, rows, bad)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for strip in share(workers, 1, strips):
        low, high = chunk_start(strip, strips, rows), chunk_start(strip + 1, strips, rows)
        fill_range(counts, low * width, high * width, 0)
        if not backward:
            fill_range(totals, low * width, high * width, 0)
        for i in range(size):
            row = peek(ids, i)
            if low <= row < high:
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    value, extreme = load(lanes, data, i * width + here), load(lanes, best, row * width + here)
                    _add(lanes, counts, row * width, column, here, where_equal(value, extreme, one, lanes))
                    if not backward:
                        given = load(lanes, values, i * width + here)
                        _add(lanes, totals, row * width, column, here, where_equal(value, extreme, given, lanes))
        if not backward:
            for row in range(low, high):
                for column in range(0, width, count(lanes)):
                    place = row * width + block_start(lanes, column, width)
                    number = load(lanes, counts, place)
                    share_of_each = load(lanes, totals, place) / number
                    store(output, place, where_equal(number, lanes, lanes, share_of_each))

    for chunk in share(workers, 2, chunks if backward else 0):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            row = peek(ids, i)
            if 0 <= row < rows:
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    place = row * width + here
                    share_of_each = load(lanes, values, place) / load(lanes, counts, place)
                    value, extreme = load(lanes, data, i * width + here), load(lanes, best, place)
                    store(output, i * width + here, where_equal(value, extreme, share_of_each, lanes))
            else:
                fill_range(output, i * width, (i + 1) * width, 0)
    leave(workers, seen)
    return np.int64(-1)


@kernel
def prod_grad(workers, chunks, strips, ids, rows, data, grad, width, lanes_for, counts, totals, output, bad):
    """output[i] = grad[ids[i]] · the product of all rows of that segment but i.

    That is the segment's product over data[i], unless one of its values is 0. `counts` (of zeros) and `totals`
    (products of all others) have room for as much as `grad`, in the type that products are made in. Returns -1, or a
    position before the first id past `rows`, in which case nothing is written.
    """
    seen = enter(workers)
    size = ids.size
    lanes = zeros(lanes_for)
    one = fill(lanes, 1)
    wrong = past_the_end(workers, chunks, ids, rows, bad)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    for strip in share(workers, 1, strips):
        low, high = chunk_start(strip, strips, rows), chunk_start(strip + 1, strips, rows)
        fill_range(counts, low * width, high * width, 0)
        fill_range(totals, low * width, high * width, 1)
        for i in range(size):
            row = peek(ids, i)
            if low <= row < high:
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    value = load(lanes, data, i * width + here)
                    _add(lanes, counts, row * width, column, here, where_equal(value, lanes, one, lanes))
                    total = load(lanes, totals, row * width + here)
                    product = total * where_equal(value, lanes, one, value)
                    store(totals, row * width + here, take_last(product, total, count(lanes) - (column - here)))

    for chunk in share(workers, 2, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            row = peek(ids, i)
            if 0 <= row < rows:
                for column in range(0, width, count(lanes)):
                    here = block_start(lanes, column, width)
                    place = row * width + here
                    value, product = load(lanes, data, i * width + here), load(lanes, totals, place)
                    number = load(lanes, counts, place)
                    alone = where_equal(number, one, product, lanes)
                    others = where_equal(value, lanes, alone, where_equal(number, lanes, product / value, lanes))
                    store(output, i * width + here, load(lanes, grad, place) * others)
            else:
                fill_range(output, i * width, (i + 1) * width, 0)
    leave(workers, seen)
    return np.int64(-1)
