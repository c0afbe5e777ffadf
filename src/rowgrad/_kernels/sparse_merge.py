"""Kernels that merge the entries of two sparse tensors by their indices, which ascend.

`pair` finds which entries meet; the others work on the pairs, which belong to the call, and so on values only. Where
indices do not ascend, entries meet as they do in TensorFlow, which merges in the same way.
"""

import math

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import count, first_of, load, store, zeros
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import add_up, chunk_start, enter, leave, share

TAKE_SUM, TAKE_LARGER, TAKE_SMALLER = 0, 1, 2


@inline
def _compare(left, i, right, j, rank):
    """-1, 0 or 1: whether index i of `left` comes before index j of `right`, is equal to it, or comes after it."""
    for d in range(rank):
        one, other = peek(left, i * rank + d), peek(right, j * rank + d)
        if one != other:
            return -1 if one < other else 1
    return 0


@kernel
def pair(a, a_size, b, b_size, rank, lefts, rights):
    """The entries of a and b that make each entry of the union, or -1; tells how many there are."""
    i, j, size = np.int64(0), np.int64(0), np.int64(0)
    while i < a_size and j < b_size:
        order = _compare(a, i, b, j, rank)
        poke(lefts, size, i if order <= 0 else np.int64(-1))
        poke(rights, size, j if order >= 0 else np.int64(-1))
        i += order <= 0
        j += order >= 0
        size += 1
    while i < a_size:
        poke(lefts, size, i)
        poke(rights, size, np.int64(-1))
        i += 1
        size += 1
    while j < b_size:
        poke(lefts, size, np.int64(-1))
        poke(rights, size, j)
        j += 1
        size += 1
    return size


@inline
def _magnitude(values, position, one, is_short):
    """The absolute value of a number; of a complex one, of two lanes, its length. Short integers are widened first."""
    if count(one) == 2:
        return math.hypot(values[2 * position], values[2 * position + 1])
    value = first_of(load(one, values, position))
    return abs(value) if is_short is None else abs(np.int64(value))


@kernel
def add_pairs(
    workers, chunks, size, lefts, rights, a_values, b_values, lanes_for, thresh, is_short, sums, keeps, counts
):
    """The sum of each pair, and whether it stays: one of two entries that is less than `thresh`, or NaN, does not.

    `is_short` is None but for integers of one and two bytes. `counts[chunk]` becomes how
    many stay before the chunk, the last how many in all.
    """
    seen = enter(workers)
    one = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        kept = np.int64(0)
        for k in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            i, j = peek(lefts, k), peek(rights, k)
            stays = True
            if i < 0:
                store(sums, k * count(one), load(one, b_values, j * count(one)))
            elif j < 0:
                store(sums, k * count(one), load(one, a_values, i * count(one)))
            else:
                total = load(one, a_values, i * count(one)) + load(one, b_values, j * count(one))
                store(sums, k * count(one), total)
                stays = thresh <= _magnitude(sums, k, one, is_short)
            poke(keeps, k, stays)
            kept += stays
        counts[chunk] = kept
    for _ in share(workers, 1, 1):
        counts[chunks] = add_up(counts, chunks)
    leave(workers, seen)


@kernel
def take_kept(workers, chunks, size, lefts, rights, a, b, rank, sums, width, keeps, counts, indices, values):
    """Copy what stays: indices and, as words, values."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        place = counts[chunk]
        for k in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            if not peek(keeps, k):
                continue
            i, j = peek(lefts, k), peek(rights, k)
            for d in range(rank):
                poke(indices, place * rank + d, peek(a, i * rank + d) if i >= 0 else peek(b, j * rank + d))
            for word in range(width):
                poke(values, place * width + word, peek(sums, k * width + word))
            place += 1
    leave(workers, seen)


@inline
def _choose(kind, left, right, first_of_equals):
    """The larger or smaller of two numbers; NaN if one is. Whether to take the first of equal ones is told."""
    if left != left:
        return True
    if right != right:
        return False
    if left == right:
        return first_of_equals
    return left > right if kind == TAKE_LARGER else left < right


@kernel
def choose_pairs(workers, chunks, size, lefts, rights, a, b, rank, a_values, b_values, lanes_for, kind, packed, indices,
                 values):  # fmt: skip
    """The larger or smaller of each pair, 0 in place of an entry that is missing.

    Of equal ones, the second is taken in the first `packed` places, which TensorFlow computes in packets, then the
    first.
    """
    seen = enter(workers)
    nothing = zeros(lanes_for)
    for chunk in share(workers, 0, chunks):
        for k in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            i, j = peek(lefts, k), peek(rights, k)
            left = load(nothing, a_values, i) if i >= 0 else nothing
            right = load(nothing, b_values, j) if j >= 0 else nothing
            for d in range(rank):
                poke(indices, k * rank + d, peek(a, i * rank + d) if i >= 0 else peek(b, j * rank + d))
            if _choose(kind, first_of(left), first_of(right), k >= packed):
                store(values, k, left)
            else:
                store(values, k, right)
    leave(workers, seen)


@kernel
def mark_chosen(size, lefts, rights, a_values, b_values, lanes_for, kind, ones, a_chosen, b_chosen):
    """1 for each entry whose value was chosen, of two equal ones for the first, else 0; an entry alone is beside 0."""
    nothing = zeros(lanes_for)
    one = load(nothing, ones, 0)
    for k in range(size):
        i, j = peek(lefts, k), peek(rights, k)
        left = load(nothing, a_values, i) if i >= 0 else nothing
        right = load(nothing, b_values, j) if j >= 0 else nothing
        is_left = _choose(kind, first_of(left), first_of(right), True)
        if i >= 0:
            store(a_chosen, i, one if is_left else nothing)
        if j >= 0:
            store(b_chosen, j, nothing if is_left else one)


@inline
def _match(indices, i, size, total, k, rank, matches):
    """Where one of the two tensors is beside entry k of the sum: the next position, and whether k is reached."""
    order = _compare(indices, i, total, k, rank)
    if order == 0:
        poke(matches, i, k)
    return i + (order <= 0), order >= 0


@kernel
def match_sum(a, a_size, b, b_size, total, total_size, rank, a_matches, b_matches):
    """Which entry of a sum each entry of both tensors is part of, or -1 if that did not stay."""
    a_matches[:] = -1
    b_matches[:] = -1
    i, j, k = np.int64(0), np.int64(0), np.int64(0)
    while k < total_size and (i < a_size or j < b_size):
        a_reached, b_reached = True, True
        if i < a_size:
            i, a_reached = _match(a, i, a_size, total, k, rank, a_matches)
        if j < b_size:
            j, b_reached = _match(b, j, b_size, total, k, rank, b_matches)
        k += a_reached and b_reached


@kernel
def take_matches(workers, chunks, matches, grad, width, output):
    """What flows to the entry of the sum that each entry is part of, as words, or 0."""
    seen = enter(workers)
    size = matches.size
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            k = peek(matches, i)
            for word in range(width):
                if k >= 0:
                    poke(output, i * width + word, peek(grad, k * width + word))
                else:
                    poke(output, i * width + word, 0)
    leave(workers, seen)


@kernel
def add_matches(matches, values, lanes_for, output):
    """Add the value of each entry to the entry of the sum that it is part of."""
    one = zeros(lanes_for)
    for i in range(matches.size):
        k = peek(matches, i)
        if k >= 0:
            total = load(one, output, k * count(one)) + load(one, values, i * count(one))
            store(output, k * count(one), total)
