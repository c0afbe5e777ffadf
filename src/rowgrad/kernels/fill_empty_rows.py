"""Kernels of the fill operators: entries grouped by row, and a default entry for each row that has none.

Values are copied, never looked at: the forward kernels see them as unsigned words of their size. Whether a row is
empty is as good as random, so nothing here branches on it: defaults are written for all rows, then entries over them.
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.lanes import load, store, zeros1
from rowgrad.kernels.order import BAD, ORDERED
from rowgrad.kernels.raw import peek, poke
from rowgrad.kernels.team import add_up, atomic_add, atomic_load, chunk_start, claim, enter, finish, leave, lowest, wait

# What `inspect_rows` tells in its `info` array, besides BAD and ORDERED.
FULL = 2


@inline
def _row_of(k, indices, rank, words, shift):
    """The row of the k-th entry in the order of rows: by `words`, or, if that is empty, as the entries come."""
    if words.size > 0:
        return peek(words, k) >> shift
    return peek(indices, k * rank)


@inline
def _snap(first, size, indices, rank, words, shift):
    """The first position from `first` on at which a row begins."""
    while 0 < first < size and (
        _row_of(first, indices, rank, words, shift) == _row_of(first - 1, indices, rank, words, shift)
    ):
        first += 1
    return first


@kernel
def inspect_rows(team, chunks, indices, rank, size, rows, bad, info):
    """See whether the rows in column 0 of `indices` are in range, and sorted."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first = chunk_start(chunk, chunks, size)
        stop = chunk_start(chunk + 1, chunks, size)
        before = peek(indices, (first - 1) * rank) if first > 0 else np.int64(0)
        falls = False
        wrong = False
        for i in range(first, stop):
            row = peek(indices, i * rank)
            wrong |= (row < 0) | (row >= rows)
            falls |= row < before
            before = row
        bad[chunk] = -1
        bad[chunks + chunk] = not falls
        if wrong:
            for i in range(first, stop):
                if indices[i * rank] < 0 or indices[i * rank] >= rows:
                    bad[chunk] = i
                    break
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        info[ORDERED] = 1
        info[BAD] = lowest(bad, chunks)
        for chunk in range(chunks):
            if bad[chunks + chunk] == 0:
                info[ORDERED] = 0
        finish(team, 1)
    wait(team, 1, 1)
    leave(team, heard)


@kernel
def place_rows(team, chunks, indices, rank, size, rows, words, shift, firsts, starts, info):
    """Count the entries of each row in `firsts`, 0 at the start; tell the places before each chunk of rows, and all."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first = _snap(chunk_start(chunk, chunks, size), size, indices, rank, words, shift)
        stop = _snap(chunk_start(chunk + 1, chunks, size), size, indices, rank, words, shift)
        for k in range(first, stop):
            row = _row_of(k, indices, rank, words, shift)
            poke(firsts, row, peek(firsts, row) + 1)
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)

    chunk = claim(team, 1)
    while chunk < chunks:
        places = np.int64(0)
        for row in range(chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)):
            places += max(peek(firsts, row), np.int64(1))
        starts[chunk] = places
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks)
    if claim(team, 2) == 0:
        info[FULL] = add_up(starts, chunks)
        finish(team, 2)
    wait(team, 2, 1)
    leave(team, heard)


@inline
def _write_defaults(first, stop, place, rank, width, default, firsts, output_indices, output_values, empty):
    """For each row its default entry, at the place of its first entry; `firsts` turns from counts into places."""
    for row in range(first, stop):
        count = peek(firsts, row)
        poke(empty, row, count == 0)
        poke(firsts, row, place)
        poke(output_indices, place * rank, row)
        for d in range(1, rank):
            poke(output_indices, place * rank + d, 0)
        for w in range(width):
            poke(output_values, place * width + w, peek(default, w))
        place += max(count, np.int64(1))


@inline
def _write_entries(first, stop, indices, rank, words, shift, values, width, firsts, output_indices, output_values,
                   reverse):  # fmt: skip
    """Each entry behind those of its row that came before."""
    mask = (np.int64(1) << shift) - 1
    before = np.int64(-1)
    behind = np.int64(0)
    for k in range(first, stop):
        i = peek(words, k) & mask if words.size > 0 else np.int64(k)
        row = peek(indices, i * rank)
        behind = (behind + 1) * (row == before)
        before = row
        place = peek(firsts, row) + behind
        for d in range(rank):
            poke(output_indices, place * rank + d, peek(indices, i * rank + d))
        for w in range(width):
            poke(output_values, place * width + w, peek(values, i * width + w))
        poke(reverse, i, place)


@kernel
def fill(team, chunks, indices, rank, size, rows, words, shift, firsts, starts, values, width, default,
         output_indices, output_values, empty, reverse):  # fmt: skip
    """After `place_rows`: write all four results, walking the entries in the order of their rows.

    `words` are the sorted (row, position) pairs, or empty where the entries are sorted as they come.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first, stop = chunk_start(chunk, chunks, rows), chunk_start(chunk + 1, chunks, rows)
        # A loop over two columns and one word is most of all calls; as constants they cost no loops.
        if rank == 2 and width == 1:
            _write_defaults(first, stop, starts[chunk], 2, 1, default, firsts, output_indices, output_values, empty)
        else:
            _write_defaults(first, stop, starts[chunk], rank, width, default, firsts, output_indices, output_values,
                            empty)  # fmt: skip
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)

    chunk = claim(team, 1)
    while chunk < chunks:
        first = _snap(chunk_start(chunk, chunks, size), size, indices, rank, words, shift)
        stop = _snap(chunk_start(chunk + 1, chunks, size), size, indices, rank, words, shift)
        if rank == 2 and width == 1:
            _write_entries(first, stop, indices, 2, words, shift, values, 1, firsts, output_indices, output_values,
                           reverse)  # fmt: skip
        else:
            _write_entries(first, stop, indices, rank, words, shift, values, width, firsts, output_indices,
                           output_values, reverse)  # fmt: skip
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks)
    leave(team, heard)


@inline
def _list_unmapped(mapped, first, stop, unmapped):
    """Write the places from `first` to `stop` that nothing was mapped to, from `first` on; returns where they end."""
    end = first
    for k in range(first, stop):
        poke(unmapped, end, k)  # overwritten by the next, unless this one stays
        end += peek(mapped, k) == 0
    return end


@kernel
def fill_grad(team, chunks, reverse, values, width, sums, mapped, unmapped, ends, d_values, d_default, bad):
    """Copy each gradient back to the entry it came from, and sum those of the defaults, in ascending order.

    Returns the first bad position, or -1. `mapped` and `unmapped` are scratch, `ends` is -1 for each chunk. The sum is
    one chain of additions, so one thread makes it, while the others list what there is to sum.
    """
    heard = enter(team)
    full = mapped.size
    size = reverse.size
    chunk = claim(team, 3)
    while chunk < chunks:
        mapped[chunk_start(chunk, chunks, full) : chunk_start(chunk + 1, chunks, full)] = 0
        finish(team, 3)
        chunk = claim(team, 3)
    wait(team, 3, chunks)
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk] = -1
        for j in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            place = peek(reverse, j)
            if place < 0 or place >= full:
                bad[chunk] = j
                break
            poke(mapped, place, 1)
            for w in range(width):
                poke(d_values, j * width + w, peek(values, place * width + w))
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(team, heard)
        return wrong

    summing = claim(team, 1) == 0
    total, second = zeros1(sums), zeros1(sums)
    part = 0
    chunk = claim(team, 2)
    while chunk < chunks or (summing and part < chunks):
        if chunk < chunks:
            first, stop = chunk_start(chunk, chunks, full), chunk_start(chunk + 1, chunks, full)
            atomic_add(ends, chunk, _list_unmapped(mapped, first, stop, unmapped) + 1)
            chunk = claim(team, 2)
        while summing and part < chunks and atomic_load(ends, part) >= 0:
            for k in range(chunk_start(part, chunks, full), ends[part]):
                place = peek(unmapped, k) * width
                total = total + load(total, values, place)
                if width == 2:
                    second = second + load(total, values, place + 1)
            part += 1
    if summing:
        store(d_default, 0, total)
        if width == 2:
            store(d_default, 1, second)
        finish(team, 1)
    wait(team, 1, 1)
    leave(team, heard)
    return np.int64(-1)
