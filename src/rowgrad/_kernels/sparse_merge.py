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
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

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


@inline
def _cut(left, left_size, right, right_size, rank, chunks, cuts, left_row, right_row):
    """Where each chunk begins in both, by equal parts of `left`: entries with the same index are in one chunk.

    The cuts are put into two rows of `cuts`, which begin at `left_row` and `right_row`.
    """
    cuts[left_row], cuts[right_row] = 0, 0
    for chunk in range(1, chunks):
        i = max(chunk_start(chunk, chunks, left_size), cuts[left_row + chunk - 1])
        while 0 < i < left_size:
            before, after = _order(left, i - 1, left, i, rank)
            if before | after:
                break
            i += 1
        low, high = cuts[right_row + chunk - 1], right_size
        while low < high and i < left_size:
            middle = (low + high) // 2
            if _order(right, middle, left, i, rank)[0]:
                low = middle + 1
            else:
                high = middle
        cuts[left_row + chunk], cuts[right_row + chunk] = i, high
    cuts[left_row + chunks], cuts[right_row + chunks] = left_size, right_size


@inline
def _falls(indices, first, last, rank):
    """Whether an entry from `first` on comes before the one that it follows."""
    found = False
    for i in range(max(first, 1), last):
        found |= _order(indices, i, indices, i - 1, rank)[0]
    return found


@inline
def _merge(a, i, a_stop, b, j, b_stop, rank, lefts, rights, size, shift):
    """The entries of a and b that make each entry of the union, or -1, from place `size` on; tells where they end.

    Those of b are put `shift` places further.
    """
    while i < a_stop and j < b_stop:
        before, after = _order(a, i, b, j, rank)
        poke(lefts, size, i | -np.int64(after))  # -1 where it is not taken
        poke(rights, size + shift, j | -np.int64(before))
        i += np.int64(not after)
        j += np.int64(not before)
        size += 1
    while i < a_stop:
        poke(lefts, size, i)
        poke(rights, size + shift, np.int64(-1))
        i += 1
        size += 1
    while j < b_stop:
        poke(lefts, size, np.int64(-1))
        poke(rights, size + shift, j)
        j += 1
        size += 1
    return size


@kernel
def pair(workers, chunks, a, a_size, b, b_size, rank, lefts, rights, cuts):
    """The entries of a and b that make each entry of the union, or -1; tells how many there are.

    `cuts` has four rows of a number per chunk and one more. The pairs of a chunk begin where the third row says; the
    fourth has how many there are before it.
    """
    seen = enter(workers)
    row = chunks + 1
    begins, ends = 2 * row, 3 * row
    for _ in share(workers, 0, 1):
        if a_size < b_size:
            _cut(b, b_size, a, a_size, rank, chunks, cuts, row, 0)
        else:
            _cut(a, a_size, b, b_size, rank, chunks, cuts, 0, row)
    for chunk in share(workers, 1, chunks):
        i, i_stop, j, j_stop = cuts[chunk], cuts[chunk + 1], cuts[row + chunk], cuts[row + chunk + 1]
        cuts[begins + chunk] = i + j
        if chunks > 1 and (_falls(a, i, i_stop, rank) or _falls(b, j, j_stop, rank)):
            cuts[ends + chunk] = -1
        else:
            cuts[ends + chunk] = _merge(a, i, i_stop, b, j, j_stop, rank, lefts, rights, i + j, 0)
    for _ in share(workers, 2, 1):
        is_whole, total = True, np.int64(0)
        for chunk in range(chunks):
            is_whole &= cuts[ends + chunk] >= 0
            here = cuts[ends + chunk] - cuts[begins + chunk]
            cuts[ends + chunk] = total
            total += here
        if not is_whole:  # chunks know nothing of entries that belong elsewhere: one thread does it all
            total = _merge(a, np.int64(0), a_size, b, np.int64(0), b_size, rank, lefts, rights, np.int64(0), 0)
            cuts[begins] = 0
            for chunk in range(1, chunks):
                cuts[ends + chunk] = total
        cuts[ends + chunks] = total
    leave(workers, seen)
    return cuts[ends + chunks]


@inline
def _magnitude(values, position, one, is_short):
    """The absolute value of a number; of a complex one, of two lanes, its length. Short integers are widened first."""
    if count(one) == 2:
        return math.hypot(values[2 * position], values[2 * position + 1])
    value = first_of(load(one, values, position))
    return abs(value) if is_short is None else abs(np.int64(value))


@inline
def _add_pair(one, i, j, a_values, b_values, thresh, is_short, sums, k):
    """Put the sum of a pair at place k; tells whether it stays."""
    left = load(one, a_values, max(i, 0) * count(one))
    right = load(one, b_values, max(j, 0) * count(one))
    store(sums, k * count(one), choose(i < 0, right, choose(j < 0, left, left + right)))
    return (i < 0) | (j < 0) | (thresh <= _magnitude(sums, k, one, is_short))


@inline
def _add_merged(one, a, i, a_stop, b, j, b_stop, rank, a_values, b_values, thresh, is_short, indices, sums, place):
    """The entries of the sum, from `place` on; tells where they end."""
    while i < a_stop and j < b_stop:
        before, after = _order(a, i, b, j, rank)
        left, right = i | -np.int64(after), j | -np.int64(before)  # -1 where it is not taken
        _take_index(a, left, b, right, known(rank, 2), indices, place)
        place += np.int64(_add_pair(one, left, right, a_values, b_values, thresh, is_short, sums, place))
        i += np.int64(not after)
        j += np.int64(not before)
    while i < a_stop or j < b_stop:
        left, right = i if i < a_stop else np.int64(-1), j if i >= a_stop else np.int64(-1)
        _take_index(a, left, b, right, known(rank, 2), indices, place)
        _add_pair(one, left, right, a_values, b_values, thresh, is_short, sums, place)
        place += 1
        i += np.int64(left >= 0)
        j += np.int64(right >= 0)
    return place


@kernel
def add(
    workers, chunks, a, a_size, b, b_size, rank, a_values, b_values, lanes_for, thresh, is_short, indices, sums, cuts
):
    """The sum of two tensors, by chunks; tells how many entries it has, or -1 if it has to be made in one chunk.

    A sum of two entries that is less than `thresh`, or NaN, does not stay. `is_short` is None but for integers of one
    and two bytes. `cuts` has four rows of a number per chunk and one more: where a chunk begins in a and b, and what it
    has put behind the sum of both, how many entries of the sum are before it.
    """
    seen = enter(workers)
    one = zeros(lanes_for)
    row = chunks + 1
    for _ in share(workers, 0, 1):
        if a_size < b_size:
            _cut(b, b_size, a, a_size, rank, chunks, cuts, row, 0)
        else:
            _cut(a, a_size, b, b_size, rank, chunks, cuts, 0, row)
    for chunk in share(workers, 1, chunks):
        i, i_stop, j, j_stop = cuts[chunk], cuts[chunk + 1], cuts[row + chunk], cuts[row + chunk + 1]
        if chunks > 1 and (_falls(a, i, i_stop, rank) or _falls(b, j, j_stop, rank)):
            cuts[2 * row + chunk] = -1
        else:
            cuts[2 * row + chunk] = _add_merged(
                one, a, i, i_stop, b, j, j_stop, rank, a_values, b_values, thresh, is_short, indices, sums, i + j
            )
    for _ in share(workers, 2, 1):
        total, is_whole = np.int64(0), True
        for chunk in range(chunks):
            is_whole &= cuts[2 * row + chunk] >= 0
            cuts[3 * row + chunk] = total
            total += cuts[2 * row + chunk] - cuts[chunk] - cuts[row + chunk]
        cuts[3 * row + chunks] = total if is_whole else np.int64(-1)
    leave(workers, seen)
    return cuts[4 * row - 1]


@kernel
def take_sum(workers, chunks, cuts, rank, indices, sums, width, sum_indices, sum_values):
    """Put together what chunks have found: indices and, as words, values."""
    seen = enter(workers)
    row = chunks + 1
    for chunk in share(workers, 0, chunks):
        begin, place = cuts[chunk] + cuts[row + chunk], cuts[3 * row + chunk]
        size = cuts[2 * row + chunk] - begin
        for at in range(size * rank):
            poke(sum_indices, place * rank + at, peek(indices, begin * rank + at))
        for at in range(size * width):
            poke(sum_values, place * width + at, peek(sums, begin * width + at))
    leave(workers, seen)


@inline
def _take_index(a, i, b, j, rank, indices, place):
    """The index of a pair, without a branch, which could not be predicted; both tensors have room for one."""
    for d in range(rank):
        one, other = peek(a, max(i, 0) * rank + d), peek(b, max(j, 0) * rank + d)
        poke(indices, place * rank + d, one if i >= 0 else other)


@inline
def _is_left(kind, left, right, first_of_equals):
    """Whether the first of two numbers is the larger or smaller one, or NaN; for equal ones, an argument decides."""
    further = (left > right) if kind == TAKE_LARGER else (left < right)
    return (left != left) | ((right == right) & (further | ((left == right) & first_of_equals)))


@inline
def _choose_pair(nothing, i, j, a_values, b_values, kind, first_of_equals, values, place):
    left = choose(i < 0, nothing, load(nothing, a_values, max(i, 0)))
    right = choose(j < 0, nothing, load(nothing, b_values, max(j, 0)))
    is_left = _is_left(kind, first_of(left), first_of(right), first_of_equals)
    store(values, place, choose(is_left, left, right))


@inline
def _is_outside(indices, size, rank, limits):
    found = False
    for i in range(size):
        for d in range(known(rank, 2)):
            here = peek(indices, i * known(rank, 2) + d)
            found |= (here < 0) | (here >= limits[d])
    return found


@kernel
def choose_small(a, a_size, b, b_size, rank, limits, a_values, b_values, lanes_for, kind, packet, pairs, indices,
                 values):  # fmt: skip
    """All of it in one call, for few entries: how many the result has; -1 or -2 if one of a or of b is out of range.

    Values of one `packet` are compared side by side in TensorFlow, or none are, if it is 0.
    """
    if _is_outside(a, a_size, rank, limits):
        return np.int64(-1)
    if _is_outside(b, b_size, rank, limits):
        return np.int64(-2)
    nothing = zeros(lanes_for)
    room = a_size + b_size
    size = _merge(a, np.int64(0), a_size, b, np.int64(0), b_size, rank, pairs, pairs, np.int64(0), room)
    packed = size // packet * packet if packet > 0 else np.int64(0)
    for k in range(size):
        i, j = peek(pairs, k), peek(pairs, room + k)
        _take_index(a, i, b, j, known(rank, 2), indices, k)
        _choose_pair(nothing, i, j, a_values, b_values, kind, k >= packed, values, k)
    return size


@kernel
def choose_pairs(workers, chunks, cuts, lefts, rights, a, b, rank, a_values, b_values, lanes_for, kind, packed, indices,
                 values):  # fmt: skip
    """The larger or smaller of each pair, 0 in place of an entry that is missing.

    Of equal ones, the second is taken in the first `packed` places, which TensorFlow computes in packets, then the
    first.
    """
    seen = enter(workers)
    nothing = zeros(lanes_for)
    begins, starts = 2 * (chunks + 1), 3 * (chunks + 1)
    for chunk in share(workers, 0, chunks):
        shift = cuts[begins + chunk] - cuts[starts + chunk]
        for place in range(cuts[starts + chunk], cuts[starts + chunk + 1]):
            i, j = peek(lefts, place + shift), peek(rights, place + shift)
            _take_index(a, i, b, j, known(rank, 2), indices, place)
            _choose_pair(nothing, i, j, a_values, b_values, kind, place >= packed, values, place)
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


@inline
def _rises(indices, first, last, rank):
    """Whether each entry from `first` on comes after the one that it follows."""
    found = True
    for i in range(max(first, 1), last):
        found &= _order(indices, i - 1, indices, i, rank)[0]
    return found


@inline
def _take_grad(indices, i, stop, total, k, k_stop, rank, grad, width, output):
    """What flows to the entry of the sum that each entry is part of, as words, or 0."""
    while i < stop and k < k_stop:
        before, after = _order(indices, i, total, k, rank)
        for word in range(known(width, 1)):
            value = peek(grad, k * known(width, 1) + word)
            poke(output, i * known(width, 1) + word, np.uint64(0) if before | after else value)
        i += np.int64(not after)  # what is still to come is written again
        k += np.int64(not before)
    for at in range(i * known(width, 1), stop * known(width, 1)):
        poke(output, at, 0)


@inline
def _equal(left, i, right, j, rank):
    """Whether two indices are the same, without branches for two columns."""
    if rank is None:
        rows = peek(left, 2 * i) ^ peek(right, 2 * j)
        return (rows | (peek(left, 2 * i + 1) ^ peek(right, 2 * j + 1))) == 0
    for d in range(rank):
        if peek(left, i * rank + d) != peek(right, j * rank + d):
            return False
    return True


@inline
def _copy_grad(grad, k, width, output, i):
    for word in range(known(width, 1)):
        poke(output, i * known(width, 1) + word, peek(grad, k * known(width, 1) + word))


@inline
def _take_both(a, i, a_stop, b, j, b_stop, total, k, k_stop, rank, grad, width, a_grad, b_grad):
    """What flows to both, if all of their entries are part of the sum, in its order; tells whether they are."""
    while i < a_stop and j < b_stop and k < k_stop:
        _copy_grad(grad, k, width, a_grad, i)  # what is still to come is written again
        _copy_grad(grad, k, width, b_grad, j)
        i += np.int64(_equal(a, i, total, k, rank))
        j += np.int64(_equal(b, j, total, k, rank))
        k += 1
    while i < a_stop and k < k_stop:
        _copy_grad(grad, k, width, a_grad, i)
        i += np.int64(_equal(a, i, total, k, rank))
        k += 1
    while j < b_stop and k < k_stop:
        _copy_grad(grad, k, width, b_grad, j)
        j += np.int64(_equal(b, j, total, k, rank))
        k += 1
    return (i == a_stop) & (j == b_stop)


@kernel
def take_grads(workers, chunks, a, a_size, b, b_size, total, total_size, rank, grad, width, a_grad, b_grad, cuts):
    """What flows to both tensors of a sum; False, and nothing of use, unless all indices rise.

    `cuts` has five rows of a number per chunk and one more; `width` is None for values of one word.
    """
    seen = enter(workers)
    row = chunks + 1
    for side in share(workers, 0, 2):
        one, size = (a, a_size) if side == 0 else (b, b_size)
        _cut(total, total_size, one, size, rank, chunks, cuts, 2 * side * row, (2 * side + 1) * row)
    for chunk in share(workers, 1, chunks):
        k, k_stop = cuts[chunk], cuts[chunk + 1]
        i, i_stop, j, j_stop = (cuts[row + chunk], cuts[row + chunk + 1], cuts[3 * row + chunk],
                                cuts[3 * row + chunk + 1])  # fmt: skip
        rises = _rises(total, k, k_stop, rank)
        if rises and not _take_both(a, i, i_stop, b, j, j_stop, total, k, k_stop, rank, grad, width, a_grad, b_grad):
            # Some sums did not stay.
            rises = _rises(a, i, i_stop, rank) and _rises(b, j, j_stop, rank)
            if rises:
                _take_grad(a, i, i_stop, total, k, k_stop, rank, grad, width, a_grad)
                _take_grad(b, j, j_stop, total, k, k_stop, rank, grad, width, b_grad)
        cuts[4 * row + chunk] = rises
    found = True
    for chunk in range(chunks):
        found &= cuts[4 * row + chunk] != 0
    leave(workers, seen)
    return found


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
