"""Kernels of the fill operators: entries grouped by row, and a default entry for each row that has none.

Values are copied, never looked at: the forward kernels see them as unsigned words of their size. Whether a row is
empty is as good as random, so hardly anything here branches on it: a default is written behind each entry, and the
next entry over it.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import load, store, zeros1
from rowgrad._kernels.order import BAD, DISTINCT, ORDERED
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import add_up, atomic_add, atomic_load, chunk_start, enter, leave, lowest, share


@inline
def _row_of(k, indices, rank, by_words, words, shift, least, rows):
    """The row of the k-th entry in the order of rows: by `words`, or as the entries come.

    A caller's indices may have changed since they were checked, so rows are kept between `least` and the last one.
    """
    if by_words:
        return peek(words, k) >> shift
    return min(max(peek(indices, k * rank), least), rows - 1)


@kernel
def inspect_rows(workers, chunks, indices, rank, size, rows, bad, starts, info):
    """See whether the rows in column 0 of `indices` are in range, and sorted.

    `starts[chunk]` becomes the number of distinct rows before the chunk, if they are sorted.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first = chunk_start(chunk, chunks, size)
        stop = chunk_start(chunk + 1, chunks, size)
        before = peek(indices, (first - 1) * rank) if first > 0 else np.int64(-1)
        falls = False
        wrong = False
        distinct = np.int64(0)
        for i in range(first, stop):
            row = peek(indices, i * rank)
            wrong |= (row < 0) | (row >= rows)
            falls |= row < before
            distinct += row != before
            before = row
        bad[chunk] = -1
        bad[chunks + chunk] = not falls
        starts[chunk] = distinct
        if wrong:
            bad[chunk] = first  # where another thread has corrected it since, the call is refused all the same
            for i in range(first, stop):
                if indices[i * rank] < 0 or indices[i * rank] >= rows:
                    bad[chunk] = i
                    break
    for _ in share(workers, 1, 1):
        info[ORDERED] = 1
        info[BAD] = lowest(bad, chunks)
        info[DISTINCT] = add_up(starts, chunks)
        for chunk in range(chunks):
            if bad[chunks + chunk] == 0:
                info[ORDERED] = 0
    leave(workers, seen)


@inline
def _write_default(row, place, rank, width, default, output_indices, output_values, empty):
    """The default entry of a row."""
    poke(empty, row, True)
    poke(output_indices, place * rank, row)
    for d in range(1, rank):
        poke(output_indices, place * rank + d, 0)
    for w in range(width):
        poke(output_values, place * width + w, peek(default, w))


@inline
def _write_defaults(row, stop, place, full, rank, width, default, output_indices, output_values, empty):
    """Default entries for the rows from `row` to `stop`, from `place` on, and not past `full` entries."""
    for ahead in range(min(stop - row, full - place)):
        _write_default(row + ahead, place + ahead, rank, width, default, output_indices, output_values, empty)


@inline
def _fill_chunk(first, stop, size, rows, distinct, indices, rank, by_words, words, shift, values, width, default,
                full, output_indices, output_values, empty, reverse):  # fmt: skip
    """Write the entries from `first` to `stop`, and the defaults of the empty rows behind each.

    The k-th entry has k entries before it, and the empty ones among the rows before its own: all but the distinct.
    Rows that change under the kernel could lead past the `full` results; places are therefore bounded.
    """
    if first == stop:
        return
    mask = (np.int64(1) << shift) - 1
    before = _row_of(first - 1, indices, rank, by_words, words, shift, 0, rows) if first > 0 else np.int64(-1)
    end = _row_of(stop - 1, indices, rank, by_words, words, shift, 0, rows)
    following = _row_of(first, indices, rank, by_words, words, shift, 0, rows)
    for k in range(first, stop):
        i = peek(words, k) & mask if by_words else np.int64(k)
        row = following
        distinct += row != before
        before = row
        place = min(max(k + row - distinct + 1, 0), full - 1)
        for d in range(rank):
            poke(output_indices, place * rank + d, peek(indices, i * rank + d))
        for w in range(width):
            poke(output_values, place * width + w, peek(values, i * width + w))
        poke(empty, row, False)
        poke(reverse, i, place)
        if k + 1 == stop:
            break
        following = _row_of(k + 1, indices, rank, by_words, words, shift, row, rows)
        # The next entry writes over this one, unless the row between is empty. No row behind the chunk's last is
        # touched: it may be another chunk's.
        _write_default(min(row + 1, end), min(place + 1, full - 1), rank, width, default, output_indices, output_values,
                       empty)  # fmt: skip
        if following > row + 2:
            _write_defaults(row + 2, following, place + 2, full, rank, width, default, output_indices, output_values,
                            empty)  # fmt: skip
    following = _row_of(stop, indices, rank, by_words, words, shift, 0, rows) if stop < size else rows
    _write_defaults(end + 1, following, max(stop + end - distinct + 1, 0), full, rank, width, default, output_indices,
                    output_values, empty)  # fmt: skip


@kernel
def fill(workers, chunks, indices, rank, size, rows, words, shift, starts, values, width, default, full, output_indices,
         output_values, empty, reverse):  # fmt: skip
    """Write all four results, walking the entries in the order of their rows.

    `words` are the sorted (row, position) pairs, or empty where the entries are sorted as they come; `starts` counts
    the distinct rows before each chunk.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        if chunk == 0:
            following = _row_of(0, indices, rank, words.size > 0, words, shift, 0, rows) if size > 0 else rows
            _write_defaults(np.int64(0), following, np.int64(0), full, rank, width, default, output_indices,
                            output_values, empty)  # fmt: skip
        # A loop over two columns and one word is most of all calls; as constants they cost no loops.
        if rank == 2 and width == 1 and words.size == 0:
            _fill_chunk(first, stop, size, rows, starts[chunk], indices, 2, False, words, shift, values, 1, default,
                        full, output_indices, output_values, empty, reverse)  # fmt: skip
        else:
            _fill_chunk(first, stop, size, rows, starts[chunk], indices, rank, words.size > 0, words, shift, values,
                        width, default, full, output_indices, output_values, empty, reverse)  # fmt: skip
    leave(workers, seen)


@inline
def _list_unmapped(mapped, first, stop, unmapped):
    """Write the places from `first` to `stop` that nothing was mapped to, from `first` on; returns where they end."""
    end = first
    for k in range(first, stop):
        poke(unmapped, end, k)  # overwritten by the next, unless this one stays
        end += peek(mapped, k) == 0
    return end


@kernel
def fill_grad(workers, chunks, reverse, values, width, sums, mapped, unmapped, ends, d_values, d_default, bad):
    """Copy each gradient back to the entry it came from, and sum those of the defaults, in ascending order.

    Returns the first bad position, or -1. `mapped` and `unmapped` are scratch, `ends` is -1 for each chunk. The sum is
    one chain of additions, so one thread makes it, while the others list what there is to sum.
    """
    seen = enter(workers)
    full = mapped.size
    size = reverse.size
    for chunk in share(workers, 0, chunks):
        mapped[chunk_start(chunk, chunks, full) : chunk_start(chunk + 1, chunks, full)] = 0
    for chunk in share(workers, 1, chunks):
        bad[chunk] = -1
        for j in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            place = peek(reverse, j)
            if place < 0 or place >= full:
                bad[chunk] = j
                break
            poke(mapped, place, 1)
            for w in range(width):
                poke(d_values, j * width + w, peek(values, place * width + w))
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(workers, seen)
        return wrong

    # The last part is the sum. Whoever gets it finds all lists made, or being made by the other threads.
    for part in share(workers, 2, chunks + 1):
        if part < chunks:
            first, stop = chunk_start(part, chunks, full), chunk_start(part + 1, chunks, full)
            atomic_add(ends, part, _list_unmapped(mapped, first, stop, unmapped) + 1)
            continue
        total, second = zeros1(sums), zeros1(sums)
        for chunk in range(chunks):
            while atomic_load(ends, chunk) < 0:
                pass
            for k in range(chunk_start(chunk, chunks, full), ends[chunk]):
                place = peek(unmapped, k) * width
                total = total + load(total, values, place)
                if width == 2:
                    second = second + load(total, values, place + 1)
        store(d_default, 0, total)
        if width == 2:
            store(d_default, 1, second)
    leave(workers, seen)
    return np.int64(-1)
