"""Kernels that merge the entries of two sparse tensors by their indices, which ascend.

`pair` finds which entries meet; the others work on the pairs, which belong to the call, and so on values only. Where
indices do not ascend, entries meet as they do in TensorFlow, which merges in the same way.
"""

import math

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import count, first_of, load, store, zeros
from rowgrad._kernels.raw import known, peek, poke
from rowgrad._kernels.segments import choose
from rowgrad._kernels.sharing import add_up, chunk_start, enter, leave, share

TAKE_SUM, TAKE_LARGER, TAKE_SMALLER = 0, 1, 2


@inline
def _order(left, i, right, j, rank):
    """Whether index i of `left` comes before index j of `right`, and whether it comes after it.

    Without branches for two columns, which are told by None: which entry comes next cannot be predicted.
    """
    if rank is None:
        row, other_row = peek(left, 2 * i), peek(right, 2 * j)
        column, other_column = peek(left, 2 * i + 1), peek(right, 2 * j + 1)
        same = row == other_row
        return (row < other_row) | (same & (column < other_column)), (row > other_row) | (
            same & (column > other_column)
        )
    before, after = False, False
    for d in range(rank):
        one, other = peek(left, i * rank + d), peek(right, j * rank + d)
        if one != other:
            before, after = one < other, one > other
            break
    return before, after


@kernel
def pair(a, a_size, b, b_size, rank, lefts, rights):
    """The entries of a and b that make each entry of the union, or -1; tells how many there are."""
    i, j, size = np.int64(0), np.int64(0), np.int64(0)
    while i < a_size and j < b_size:
        before, after = _order(a, i, b, j, rank)
        poke(lefts, size, i | -np.int64(after))  # -1 where it is not taken
        poke(rights, size, j | -np.int64(before))
        i += np.int64(not after)
        j += np.int64(not before)
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
            left = load(one, a_values, max(i, 0) * count(one))
            right = load(one, b_values, max(j, 0) * count(one))
            store(sums, k * count(one), choose(i < 0, right, choose(j < 0, left, left + right)))
            stays = (i < 0) | (j < 0) | (thresh <= _magnitude(sums, k, one, is_short))
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
            _take_index(a, i, b, j, known(rank, 2), indices, place)
            for word in range(width):
                poke(values, place * width + word, peek(sums, k * width + word))
            place += 1
    leave(workers, seen)


@inline
def _take_index(a, i, b, j, rank, indices, place):
    """The index of a pair, without a branch, which could not be predicted; both tensors have room for one."""
    for d in range(rank):
        one, other = peek(a, max(i, 0) * rank + d), peek(b, max(j, 0) * rank + d)
        poke(indices, place * rank + d, one if i >= 0 else other)


@inline
def _is_left(kind, left, right, first_of_equals):
    """Whether the first of two numbers is the larger or smaller one, or NaN; of equal ones, it is told which."""
    further = (left > right) if kind == TAKE_LARGER else (left < right)
    return (left != left) | ((right == right) & (further | ((left == right) & first_of_equals)))


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
            left = choose(i < 0, nothing, load(nothing, a_values, max(i, 0)))
            right = choose(j < 0, nothing, load(nothing, b_values, max(j, 0)))
            _take_index(a, i, b, j, known(rank, 2), indices, k)
            store(values, k, choose(_is_left(kind, first_of(left), first_of(right), k >= packed), left, right))
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
        is_left = _is_left(kind, first_of(left), first_of(right), True)
        if i >= 0:
            store(a_chosen, i, one if is_left else nothing)
        if j >= 0:
            store(b_chosen, j, nothing if is_left else one)


@kernel
def match_sum(a, a_size, b, b_size, total, total_size, rank, a_matches, b_matches):
    """Which entry of a sum each entry of both tensors is part of, or -1 if that did not stay."""
    i, j, k = np.int64(0), np.int64(0), np.int64(0)
    while i < a_size and j < b_size and k < total_size:
        a_before, a_after = _order(a, i, total, k, rank)
        b_before, b_after = _order(b, j, total, k, rank)
        poke(a_matches, i, k | -np.int64(a_before | a_after))  # written again if it is still to come
        poke(b_matches, j, k | -np.int64(b_before | b_after))
        i += np.int64(not a_after)
        j += np.int64(not b_after)
        k += np.int64(not (a_before | b_before))
    i = _match_rest(a, i, a_size, total, k, total_size if j == b_size else k, rank, a_matches)
    _match_rest(b, j, b_size, total, k, total_size if i == a_size else k, rank, b_matches)


@inline
def _match_rest(indices, i, size, total, k, total_size, rank, matches):
    """The same for what is left of one of the tensors; tells how many entries there are."""
    while i < size and k < total_size:
        before, after = _order(indices, i, total, k, rank)
        poke(matches, i, k | -np.int64(before | after))
        i += np.int64(not after)
        k += np.int64(not before)
    while i < size:
        poke(matches, i, np.int64(-1))
        i += 1
    return i


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
