"""Kernels of the fill operators: entries grouped by row, and a default entry for each row that has none.

Values are copied, never looked at: these kernels see them as unsigned words of their size. Entries mostly come
in long runs without an empty row between them, and those are copied block by block. Elsewhere, whether a row is
empty is as good as random, so hardly anything branches on it: a default is written behind each entry, and the next
entry over it.

A call that is not large is one thread's (`inspect`, `fill`), without the counters that threads share work by; the
kernels for several threads (`…_together`) are made of the same parts. Two columns and values of one word, which most
calls have, are told by None (see `known`). The way back is in `fill_empty_rows_grad.py`.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import INT32, count, load, store, zeros16, zeros64
from rowgrad._kernels.raw import known, peek, poke
from rowgrad._kernels.sharing import add_up, chunk_start, enter, leave, share

WORD = ir.IntType(64)
BLOCK = 16
MOST_SINGLE = 64  # entries that are written one by one before a block is tried again, where blocks have failed


@inline
def _row_of(k, indices, rank, least, rows):
    """The row of the k-th entry, kept between `least` and the last one: it may have changed since it was checked."""
    return min(max(peek(indices, k * rank), least), rows - 1)


def _block(context, builder, indices, data, first):
    """The vectors of a block of indices with two columns, and of the block that is one entry further on."""
    vector = ir.VectorType(WORD, 2 * BLOCK)
    here = builder.gep(context.make_array(indices)(context, builder, data).data, [builder.mul(first, WORD(2))])
    pointers = (builder.bitcast(builder.gep(here, [INT32(2 * ahead)]), vector.as_pointer()) for ahead in (0, 1))
    return [builder.load(pointer, align=8) for pointer in pointers]


@intrinsic
def _odd_steps(typingctx, indices, first):
    """0 if each row of a block of indices with two columns equals the one before or follows it; by vectors."""

    def codegen(context, builder, signature, args):
        before, after = _block(context, builder, indices, *args)
        # A step of 0 or 1 has no other bit; columns do not count.
        mask = ir.Constant(before.type, [-2, 0] * BLOCK)
        odd = builder.and_(builder.sub(after, before), mask)
        kind = ir.FunctionType(WORD, [before.type])
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.or.v{2 * BLOCK}i64")
        return builder.call(reduce, [odd])

    return types.int64(indices, types.int64), codegen


@intrinsic
def _count_changes(typingctx, indices, first):
    """How many rows of a block of indices with two columns differ from the one before; -1 if one is smaller."""

    def codegen(context, builder, signature, args):
        before, after = _block(context, builder, indices, *args)
        bits = ir.IntType(2 * BLOCK)
        rows = bits(sum(1 << 2 * i for i in range(BLOCK)))
        smaller, other = (
            builder.and_(builder.bitcast(builder.icmp_signed(symbol, after, before), bits), rows)
            for symbol in ("<", "!=")
        )
        is_sorted = builder.icmp_unsigned("==", smaller, bits(0))
        return builder.select(is_sorted, builder.zext(builder.ctpop(other), WORD), WORD(-1))

    return types.int64(indices, types.int64), codegen


@inline
def _survey(indices, rank, first, stop, blockwise):
    """How many rows differ from the one before, or -1 if one is smaller than that."""
    distinct = np.int64(first == 0 < stop)
    i = max(first, 1)
    if blockwise is None:
        while i + BLOCK <= stop:
            more = _count_changes(indices, i - 1)
            if more < 0:
                return np.int64(-1)
            distinct += more
            i += BLOCK
    while i < stop:
        before, row = peek(indices, (i - 1) * rank), peek(indices, i * rank)
        if row < before:
            return np.int64(-1)
        distinct += row != before
        i += 1
    return distinct


@inline
def _first_wrong(indices, rank, first, stop, rows):
    """The first row that is out of range; where another thread has corrected it since, the first of all."""
    for i in range(first, stop):
        row = peek(indices, i * rank)
        if row < 0 or row >= rows:
            return np.int64(i)
    return np.int64(first)


@kernel
def inspect(indices, rank, size, rows):
    """How many distinct rows there are in column 0 of `indices`, if they are sorted, and -1 if they are not.

    If they are sorted, and one is out of range, -2 less its position is returned.
    """
    columns = known(rank, 2)
    distinct = _survey(indices, columns, 0, size, rank)
    if distinct > 0 and (peek(indices, 0) < 0 or peek(indices, (size - 1) * columns) >= rows):
        return -2 - _first_wrong(indices, columns, 0, size, rows)
    return distinct


@kernel
def inspect_together(workers, chunks, indices, rank, size, starts, info):
    """How many distinct rows there are, into `info`, if they are sorted, and -1 if they are not.

    `starts[chunk]` becomes the number of distinct rows before the chunk, if they are.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        starts[chunk] = _survey(indices, known(rank, 2), first, stop, rank)
    for _ in share(workers, 1, 1):
        is_sorted = True
        for chunk in range(chunks):
            is_sorted &= starts[chunk] >= 0
        info[0] = add_up(starts, chunks) if is_sorted else -1
    leave(workers, seen)


@inline
def _write_default(row, place, rank, width, default, output_indices, output_values):
    """The default entry of a row."""
    poke(output_indices, place * rank, row)
    for d in range(1, rank):
        poke(output_indices, place * rank + d, 0)
    for w in range(width):
        poke(output_values, place * width + w, peek(default, w))


@inline
def _write_defaults(row, stop, place, full, rank, width, default, output_indices, output_values, empty):
    """Default entries for the rows from `row` to `stop`, from `place` on, and not past `full` entries."""
    for ahead in range(min(stop - row, full - place)):
        poke(empty, row + ahead, True)
        _write_default(row + ahead, place + ahead, rank, width, default, output_indices, output_values)


@inline
def _write_entry(i, place, indices, rank, values, width, output_indices, output_values, reverse):
    if rank == 2:
        store(output_indices, place * rank, load(zeros16(indices), indices, i * rank))
    else:
        for d in range(rank):
            poke(output_indices, place * rank + d, peek(indices, i * rank + d))
    for w in range(width):
        poke(output_values, place * width + w, peek(values, i * width + w))
    poke(reverse, i, place)


@inline
def copy_block(lanes, source, first, target, place, size):
    """Copy `size` words, whole vectors of them: read before written, whatever LLVM thinks of where arrays lie."""
    for i in range(0, size, count(lanes)):
        store(target, place + i, load(lanes, source, first + i))


@inline
def _fill_chunk(first, stop, size, rows, distinct, indices, rank, values, width, default, full, output_indices,
                output_values, empty, reverse, blockwise):  # fmt: skip
    """Write the entries from `first` to `stop`, and the defaults of the empty rows behind each.

    The k-th entry has k entries before it, and the empty ones among the rows before its own: all but the distinct.
    Blocks are tried where `blockwise` is None; elsewhere they would only be more to compile. Rows that change under
    the kernel could lead past the `full` results; places are therefore bounded. Returns where the chunk began,
    and the place behind it.
    """
    row = _row_of(first, indices, rank, 0, rows)
    if first == 0:
        begin = np.int64(0)
        _write_defaults(np.int64(0), row, begin, full, rank, width, default, output_indices, output_values, empty)
        place = row
    else:
        before = _row_of(first - 1, indices, rank, 0, rows)
        place = min(max(first + row - distinct + (row == before), 0), full)
        begin = place
    end = _row_of(stop - 1, indices, rank, 0, rows)
    k, single = first, np.int64(BLOCK // 2)
    while k < stop:
        if blockwise is None and k + BLOCK < stop and place + BLOCK < full and _odd_steps(indices, k) == 0:
            copy_block(zeros64(indices), indices, k * rank, output_indices, place * rank, BLOCK * rank)
            copy_block(zeros16(values), values, k * width, output_values, place * width, BLOCK * width)
            for i in range(BLOCK):
                poke(reverse, k + i, place + i)
            k += BLOCK
            place += BLOCK
            row = _row_of(k, indices, rank, row, rows)
            single = np.int64(BLOCK // 2)
            continue
        single = min(2 * single, np.int64(MOST_SINGLE))
        for _ in range(min(single, stop - k)):
            _write_entry(k, min(place, full - 1), indices, rank, values, width, output_indices, output_values, reverse)
            k += 1
            place += 1
            if k == stop:
                break
            following = _row_of(k, indices, rank, row, rows)
            # The next entry writes over this one, unless the row between is empty. No row behind the chunk's last
            # is touched: it may be another chunk's.
            _write_default(min(row + 1, end), min(place, full - 1), rank, width, default, output_indices,
                           output_values)  # fmt: skip
            poke(empty, min(row + 1, end), following > row + 1)
            if following > row + 2:
                _write_defaults(row + 2, following, place + 1, full, rank, width, default, output_indices,
                                output_values, empty)  # fmt: skip
            place += max(following - row - 1, 0)
            row = following
    following = _row_of(stop, indices, rank, 0, rows) if stop < size else rows
    _write_defaults(end + 1, following, place, full, rank, width, default, output_indices, output_values, empty)
    return begin, place + max(following - end - 1, 0)


@kernel
def fill(indices, rank, size, rows, values, width, default, full, output_indices, output_values, empty, reverse):
    """Write all four results for entries whose rows are sorted; tells where the results end."""
    empty[:] = False
    columns, words = known(rank, 2), known(width, 1)
    if size == 0:
        _write_defaults(np.int64(0), rows, np.int64(0), full, columns, words, default, output_indices, output_values,
                        empty)  # fmt: skip
        return full
    return _fill_chunk(0, size, size, rows, 0, indices, columns, values, words, default, full, output_indices,
                       output_values, empty, reverse, rank)[1]  # fmt: skip


@kernel
def fill_together(workers, chunks, indices, rank, size, rows, starts, values, width, default, full, output_indices,
                  output_values, empty, reverse, begins, ends):  # fmt: skip
    """The same by several threads; `empty` must be zero, and `starts` counts the distinct rows before each chunk.

    The results are good if each chunk that has entries ends where the next one begins.
    """
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        if first < stop:
            begins[chunk], ends[chunk] = _fill_chunk(
                first, stop, size, rows, starts[chunk], indices, known(rank, 2), values, known(width, 1), default, full,
                output_indices, output_values, empty, reverse, rank)  # fmt: skip
    leave(workers, seen)


@kernel
def count_rows(indices, rank, size, rows, rows_of, counts):
    """Count the entries of each row, whatever their order; `counts` must be zero. Returns the number of distinct rows.

    `rows_of` keeps the row of each entry: what is counted must be what is used. If one is out of range, -2 less its
    position is returned.
    """
    distinct = np.int64(0)
    for i in range(size):
        row = peek(indices, i * known(rank, 2))
        if row < 0 or row >= rows:
            return -2 - np.int64(i)
        poke(rows_of, i, row)
        here = peek(counts, row)
        distinct += here == 0
        poke(counts, row, here + 1)
    return distinct


@kernel
def fill_counted(indices, rank, rows_of, counts, values, width, default, full, output_indices, output_values, empty,
                 reverse):  # fmt: skip
    """Write all four results for entries in any order, whose rows were counted; `counts` is used up."""
    columns, words = known(rank, 2), known(width, 1)
    place = np.int64(0)
    for row in range(counts.size):
        here = peek(counts, row)
        poke(counts, row, place)
        poke(empty, row, here == 0)
        if here == 0:
            _write_default(row, place, columns, words, default, output_indices, output_values)
        place += max(here, 1)
    for i in range(rows_of.size):
        row = peek(rows_of, i)
        place = peek(counts, row)
        poke(counts, row, place + 1)
        _write_entry(i, place, indices, columns, values, words, output_indices, output_values, reverse)
