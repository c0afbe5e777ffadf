"""Kernels of the fill operators: entries grouped by row, and a default entry for each row that has none.

Values are copied, never looked at: the forward kernel sees them as unsigned words of their size.
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.lanes import load, store, zeros1
from rowgrad.kernels.order import BAD, DISTINCT, ORDERED
from rowgrad.kernels.team import chunk_start, claim, enter, finish, leave, wait


@kernel
def inspect_rows(team, chunks, indices, rank, size, rows, bad, sorted_chunks, row_starts, info):
    """Check column 0 of `indices` and see whether it is sorted; if so, count the distinct rows before each chunk."""
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        first = chunk_start(chunk, chunks, size)
        before = indices[(first - 1) * rank] if first > 0 else np.int64(-1)
        distinct = 0
        ordered = True
        bad[chunk] = -1
        for i in range(first, chunk_start(chunk + 1, chunks, size)):
            row = indices[i * rank]
            if row < 0 or row >= rows:
                bad[chunk] = i
                break
            ordered &= row >= before
            distinct += row != before
            before = row
        sorted_chunks[chunk] = ordered
        row_starts[chunk] = distinct
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        info[ORDERED] = 1
        total = 0
        for chunk in range(chunks):
            if info[BAD] < 0 and bad[chunk] >= 0:
                info[BAD] = bad[chunk]
            if sorted_chunks[chunk] == 0:
                info[ORDERED] = 0
            here = row_starts[chunk]
            row_starts[chunk] = total
            total += here
        info[DISTINCT] = total
        finish(team, 1)
    wait(team, 1, 1)
    leave(team, heard)


@inline
def _write_default(row, place, rank, width, default, output_indices, output_values, empty):
    empty[row] = True
    output_indices[place * rank] = row
    for d in range(1, rank):
        output_indices[place * rank + d] = 0
    for w in range(width):
        output_values[place * width + w] = default[w]


@kernel
def fill(team, chunks, indices, rank, size, rows, words, shift, distinct, row_starts, values, width, default,
         output_indices, output_values, empty, reverse):  # fmt: skip
    """Write all four results, walking the entries in the order of their rows.

    `words` are the sorted (row, position) pairs, or empty where the entries are sorted as they come. The k-th entry
    of that order moves behind k entries and behind one default for each empty row before its own.
    """
    heard = enter(team)
    mask = (np.int64(1) << shift) - 1
    chunk = claim(team, 0)
    while chunk < chunks:
        first = chunk_start(chunk, chunks, size)
        seen = row_starts[chunk]
        before = np.int64(-1)
        if first > 0:
            before = words[first - 1] >> shift if words.size > 0 else indices[(first - 1) * rank]
        for k in range(first, chunk_start(chunk + 1, chunks, size)):
            i = words[k] & mask if words.size > 0 else np.int64(k)
            row = indices[i * rank]
            if row != before:
                for gap in range(before + 1, row):
                    _write_default(gap, k + gap - seen, rank, width, default, output_indices, output_values, empty)
                empty[row] = False
                seen += 1
                before = row
            place = k + row - (seen - 1)
            for d in range(rank):
                output_indices[place * rank + d] = indices[i * rank + d]
            for w in range(width):
                output_values[place * width + w] = values[i * width + w]
            reverse[i] = place
        finish(team, 0)
        chunk = claim(team, 0)

    chunk = claim(team, 1)
    while chunk < chunks:
        end = np.int64(0)
        if size > 0:
            end = (words[size - 1] >> shift if words.size > 0 else indices[(size - 1) * rank]) + 1
        tail = rows - end
        for gap in range(end + chunk_start(chunk, chunks, tail), end + chunk_start(chunk + 1, chunks, tail)):
            _write_default(gap, size + gap - distinct, rank, width, default, output_indices, output_values, empty)
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 0, chunks)
    wait(team, 1, chunks)
    leave(team, heard)


@kernel
def fill_grad(team, chunks, reverse, values, width, sums, mapped, d_values, d_default, bad):
    """Copy each gradient back to the entry it came from, and sum those of the defaults, in ascending order.

    `mapped` is scratch, zero at the start. The sum is one chain of additions, so one thread makes it while the
    others copy.
    """
    heard = enter(team)
    full = mapped.size
    size = reverse.size
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk] = -1
        for j in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            if reverse[j] < 0 or reverse[j] >= full:
                bad[chunk] = j
                break
            mapped[reverse[j]] = 1
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    for chunk in range(chunks):
        if bad[chunk] >= 0:
            leave(team, heard)
            return

    chunk = claim(team, 1)
    while chunk < chunks + 1:
        if chunk == 0:
            for w in range(width):
                total = zeros1(sums)
                for k in range(full):
                    if mapped[k] == 0:
                        total = total + load(total, values, k * width + w)
                store(d_default, w, total)
        else:
            for j in range(chunk_start(chunk - 1, chunks, size), chunk_start(chunk, chunks, size)):
                for w in range(width):
                    d_values[j * width + w] = values[reverse[j] * width + w]
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks + 1)
    leave(team, heard)
