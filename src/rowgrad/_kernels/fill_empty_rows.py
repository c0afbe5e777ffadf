"""Kernels of the fill operators: entries grouped by row, and a default entry for each row that has none.

Values are copied, never looked at: the forward kernels see them as unsigned words of their size. Entries mostly come
in long runs without an empty row between them, and those are copied block by block. Elsewhere, whether a row is
empty is as good as random, so hardly anything branches on it: a default is written behind each entry, and the next
entry over it.

A call that is not large is one thread's (`inspect`, `fill`, `fill_grad`), without the counters that threads share work
by; the kernels for several threads (`…_together`) are made of the same parts. Two columns and values of one word, which
most calls have, are told by None (see `known`).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.lanes import INT32, count, load, spread, store, zeros1, zeros16, zeros64
from rowgrad._kernels.raw import fill_range, known, peek, poke
from rowgrad._kernels.sharing import add_up, atomic_add, atomic_load, chunk_start, enter, leave, lowest, share

WORD = ir.IntType(64)
BLOCK = 16
MOST_SINGLE = 64  # entries that are written one by one before a block is tried again, where blocks have failed
PART = 128  # entries whose defaults are listed before they are added
EIGHT = 8  # entries whose defaults are listed at once
FAR = 8  # if more than one step in so many is longer than two, a map is not taken to ascend by short steps

# By which of eight entries follow a default: how far the defaults are behind the first place, a byte for each.
LEFT_OUT = [sum(bit + t << 8 * t for t, bit in enumerate([bit for bit in range(EIGHT) if mask >> bit & 1]))
            for mask in range(256)]  # fmt: skip


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
def _copy_block(lanes, source, first, target, place, size):
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
            _copy_block(zeros64(indices), indices, k * rank, output_indices, place * rank, BLOCK * rank)
            _copy_block(zeros16(values), values, k * width, output_values, place * width, BLOCK * width)
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


# The way back


@inline
def _is_ascending(reverse, first, place, full):
    """Whether the places of a block follow each other, behind `place`."""
    base = peek(reverse, first)
    breaks = False
    for j in range(BLOCK):
        breaks |= peek(reverse, first + j) != base + j
    return not breaks and place <= base <= full - BLOCK


@inline
def _copy_value(values, place, width, d_values, j):
    for w in range(width):
        poke(d_values, j * width + w, peek(values, place * width + w))


@inline
def _add_range(total, second, values, width, first, stop):
    """Add the values from `first` to `stop`, in this order; complex ones are pairs, with a second sum."""
    for place in range(first, stop):
        total = total + load(total, values, place * width)
        if width == 2:
            second = second + load(total, values, place * width + 1)
    return total, second


@inline
def _skip(total, second, values, width, first, stop, unmapped, listed):
    """Add the values of the places from `first` to `stop`, or list these places in `unmapped`, from `listed` on.

    Two are written in any case, and overwritten by the next: how many there are could not be predicted.
    """
    if unmapped is None:
        total, second = _add_range(total, second, values, width, first, stop)
    else:
        poke(unmapped, listed, first)
        poke(unmapped, listed + 1, first + 1)
        for k in range(2, stop - first):
            poke(unmapped, listed + k, first + k)
        listed += stop - first
    return total, second, listed


@inline
def _gather(reverse, first, stop, full, values, width, d_values, place, zero, unmapped, listed):
    """Copy values while their places ascend from `place` on, and add or list those between.

    Tells how far it came, the place behind the last value, both sums, and where the list ends.
    """
    total, second = zero, zero
    j = first
    while j < stop:
        if j + BLOCK <= stop and _is_ascending(reverse, j, place, full):
            base = min(max(peek(reverse, j), place), full - BLOCK)
            total, second, listed = _skip(total, second, values, width, place, base, unmapped, listed)
            _copy_block(zeros16(values), values, base * width, d_values, j * width, BLOCK * width)
            j += BLOCK
            place = base + BLOCK
            continue
        for _ in range(min(BLOCK, stop - j)):
            here = peek(reverse, j)
            if here < place or here >= full:
                return j, place, total, second, listed
            total, second, listed = _skip(total, second, values, width, place, here, unmapped, listed)
            _copy_value(values, here, width, d_values, j)
            place = here + 1
            j += 1
    return j, place, total, second, listed


@inline
def _store_sum(total, second, width, d_default):
    store(d_default, 0, total)
    if width == 2:
        store(d_default, 1, second)


@inline
def _add_places(total, second, values, width, full, unmapped, first, stop):
    """Add the values of the places that `unmapped` lists from `first` to `stop`."""
    for k in range(first, stop):
        place = min(peek(unmapped, k), full - 1)
        total, second = _add_range(total, second, values, width, place, place + 1)
    return total, second


@intrinsic
def _list_gaps(typingctx: Any, places: Any, place: Any, unmapped: Any, listed: Any) -> Any:
    """List which places from `place` on eight ascending ones leave out, none or one before each.

    Tells how many, or -1 if it is not so. Eight places of the list are written, whatever their number.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        here, begin, listing, at = args
        vector, word, byte = here.type, begin.type, ir.IntType(8)
        start = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.sub(begin, word(1)), INT32(0))
        before = builder.shuffle_vector(start, here, ir.Constant(ir.VectorType(INT32, EIGHT), [0, *range(8, 15)]))
        steps = builder.sub(here, before)
        one, two = (ir.Constant(vector, [word(number)] * EIGHT) for number in (1, 2))
        is_one, is_two = (builder.bitcast(builder.icmp_signed("==", steps, each), byte) for each in (one, two))
        listing_of = cgutils.global_constant(builder, "left_out", ir.Constant(ir.ArrayType(word, 256), LEFT_OUT))
        row = builder.load(builder.gep(listing_of, [INT32(0), builder.zext(is_two, INT32)]))
        row = builder.zext(builder.bitcast(row, ir.VectorType(byte, EIGHT)), vector)
        row = builder.add(row, spread(builder, begin, EIGHT))
        pointer = builder.gep(context.make_array(unmapped)(context, builder, listing).data, [at])
        builder.store(row, builder.bitcast(pointer, vector.as_pointer()), align=8)
        is_close = builder.icmp_signed("==", builder.or_(is_one, is_two), byte(-1))
        return builder.select(is_close, builder.zext(builder.ctpop(is_two), word), word(-1))

    return types.int64(places, types.int64, unmapped, types.int64), codegen


@intrinsic
def _lane(typingctx: Any, lanes: Any, number: Any) -> Any:
    """One of the lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(*args)

    return lanes.dtype(lanes, types.int64), codegen


@inline
def _gather_close(reverse, size, full, values, width, d_values, zero, unmapped):
    """Copy values while their places ascend, mostly by one or two; the places between are listed, then added.

    Without a branch for each: whether one place is left out could not be predicted. A part is listed while the sum of
    the one before is still being made. Tells how far it came, the place behind the last value, and both sums.
    """
    total, second = zero, zero
    j, place, far = np.int64(0), np.int64(0), np.int64(0)
    while j < size:
        stop = min(j + PART, size)
        near = min(stop, j + (full - place) // 2)  # up to there, steps of two stay within the values
        listed = np.int64(0)
        while j + EIGHT <= near:
            places = load(zeros64(reverse), reverse, j)
            more = _list_gaps(places, place, unmapped, listed)
            if more < 0:
                break
            for k in range(EIGHT):
                _copy_value(values, _lane(places, k), width, d_values, j + k)
            listed += more
            place = _lane(places, EIGHT - 1) + 1  # not by `more`, which takes longer to know
            j += EIGHT
        while j < near:
            gap = peek(reverse, j) - place
            poke(unmapped, listed, place)  # overwritten by the next, unless this one is left out
            if gap & -2 != 0:
                break
            listed += gap
            _copy_value(values, place + gap, width, d_values, j)
            place += gap + 1
            j += 1
        total, second = _add_places(total, second, values, width, full, unmapped, np.int64(0), listed)
        if j < stop:
            here = peek(reverse, j)
            far += 1
            if here < place or here >= full or far > j // FAR + PART:
                break
            total, second = _add_range(total, second, values, width, place, here)
            _copy_value(values, here, width, d_values, j)
            place = here + 1
            j += 1
    return j, place, total, second


@inline
def _list_unmapped(mapped, first, stop, unmapped, listed):
    """List the places from `first` to `stop` that nothing is mapped to, from `listed` on; tells where the list ends."""
    for place in range(first, stop):
        poke(unmapped, listed, place)  # overwritten by the next, unless this one stays
        listed += peek(mapped, place) == 0
    return listed


@kernel
def fill_grad(reverse, values, width, sums, unmapped, mapped, d_values, d_default):
    """Copy each gradient back to the entry it came from, and sum those of the defaults, in ascending order.

    Returns the first bad position, or -1. `mapped` is scratch, one byte for each of the values, for maps that do not
    ascend. With `unmapped`, scratch for one place for each of the values and one more, places are listed before their
    values are added: where many values are defaults, a branch for each could not be predicted. `sums` is an empty array
    of the type that sums are made in.
    """
    words, zero = known(width, 1), zeros1(sums)
    full, size = mapped.size, reverse.size
    if unmapped is None:
        j, place, total, second, _ = _gather(reverse, 0, size, full, values, words, d_values, np.int64(0), zero, None,
                                             np.int64(0))  # fmt: skip
        if j == size:
            total, second = _add_range(total, second, values, words, place, full)
            _store_sum(total, second, words, d_default)
            return np.int64(-1)
    else:
        j, place, total, second = _gather_close(reverse, size, full, values, words, d_values, zero, unmapped)
        if j == size:
            total, second = _add_range(total, second, values, words, place, full)
            _store_sum(total, second, words, d_default)
            return np.int64(-1)
    mapped[:] = 0
    for j in range(size):
        place = peek(reverse, j)
        if place < 0 or place >= full:
            return np.int64(j)
        poke(mapped, place, 1)
        _copy_value(values, place, words, d_values, j)
    total, second = zero, zero
    place = np.int64(0)
    if unmapped is not None:
        listed = _list_unmapped(mapped, 0, full, unmapped, np.int64(0))
        total, second = _add_places(total, second, values, words, full, unmapped, np.int64(0), listed)
        place = np.int64(full)
    while place < full:
        marks = np.uint8(0)
        last = min(place + BLOCK, full)
        for k in range(place, last):
            marks += peek(mapped, k)
        if marks < last - place:
            for k in range(place, last):
                if peek(mapped, k) == 0:
                    total, second = _add_range(total, second, values, words, k, k + 1)
        place = last
    _store_sum(total, second, words, d_default)
    return np.int64(-1)


@inline
def _add_listed(zero, values, width, full, chunks, unmapped, begins, ends, bad, d_default):
    """Add the values of the listed places, chunk by chunk, as soon as each is listed; up to a chunk that is bad."""
    total, second = zero, zero
    for chunk in range(chunks):
        while atomic_load(ends, chunk) < 0:
            pass
        if bad[chunk] >= 0:
            break
        total, second = _add_places(total, second, values, width, full, unmapped, begins[chunk], ends[chunk])
    _store_sum(total, second, width, d_default)


@kernel
def fill_grad_together(workers, chunks, reverse, values, full, width, sums, unmapped, begins, ends, d_values, d_default,
                       bad):  # fmt: skip
    """The same by several threads, for maps that ascend; returns -1, or a position where the map does not.

    `unmapped` is scratch, one place for each of the values and two for each chunk; `ends` is -1 for each chunk. The sum
    is one chain of additions, so one thread makes it, while the others list what there is to sum.
    """
    seen = enter(workers)
    size = reverse.size
    words, zero = known(width, 1), zeros1(sums)
    for part in share(workers, 0, chunks + 1):
        if part == chunks:  # the last, so that all lists are made, or being made by other threads
            _add_listed(zero, values, words, full, chunks, unmapped, begins, ends, bad, d_default)
            continue
        first, stop = chunk_start(part, chunks, size), chunk_start(part + 1, chunks, size)
        place = min(max(peek(reverse, first - 1) + 1, 0), full) if first > 0 else np.int64(0)
        begins[part] = place + 2 * part  # `_skip` writes up to two more than there are
        j, behind, _, _, listed = _gather(reverse, first, stop, full, values, words, d_values, place, zero, unmapped,
                                          begins[part])  # fmt: skip
        bad[part] = j if j < stop else -1
        if part == chunks - 1 and j == stop:
            _, _, listed = _skip(zero, zero, values, words, behind, full, unmapped, listed)
        atomic_add(ends, part, listed + 1)
    leave(workers, seen)
    return lowest(bad, chunks)


@kernel
def fill_grad_scattered(workers, chunks, reverse, values, width, sums, unmapped, begins, ends, mapped, d_values,
                        d_default, bad):  # fmt: skip
    """The same by several threads, for maps in any order; returns the first bad position, or -1.

    `mapped` is scratch, one byte for each of the values, `unmapped` one place for each and one more for each chunk.
    """
    seen = enter(workers)
    full, size = mapped.size, reverse.size
    words, zero = known(width, 1), zeros1(sums)
    for part in share(workers, 0, chunks):
        fill_range(mapped, chunk_start(part, chunks, full), chunk_start(part + 1, chunks, full), 0)
    for part in share(workers, 1, chunks):
        bad[part] = -1
        for j in range(chunk_start(part, chunks, size), chunk_start(part + 1, chunks, size)):
            place = peek(reverse, j)
            if place < 0 or place >= full:
                bad[part] = j
                break
            poke(mapped, place, 1)
            _copy_value(values, place, words, d_values, j)
    for part in share(workers, 2, chunks + 1):
        if part == chunks:
            _add_listed(zero, values, words, full, chunks, unmapped, begins, ends, bad, d_default)
            continue
        first, stop = chunk_start(part, chunks, full), chunk_start(part + 1, chunks, full)
        begins[part] = first + part  # each list writes one more than it has
        atomic_add(ends, part, _list_unmapped(mapped, first, stop, unmapped, begins[part]) + 1)
    leave(workers, seen)
    return lowest(bad, chunks)
