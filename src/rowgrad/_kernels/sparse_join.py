"""The kernel that cuts a sparse tensor into parts along one dimension.

The caller's indices may change meanwhile: which part an entry goes to is read once, and kept in memory of the call.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.raw import fill_range, known, peek, peek_bounded, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share


@inline
def _begin(part, size, longer):
    """Where a part begins: the first `longer` parts are of `size` + 1, the others of `size`."""
    return part * size + min(part, longer)


@inline
def _part(here, size, longer, table):
    """The part that an index is in."""
    border = longer * (size + 1)
    if table.size > 0:
        return np.int64(peek(table, here))
    if here < border:
        return here // (size + 1)
    return longer + (here - border) // size


@kernel
def cut(workers, chunks, indices, rank, axis, limits, size, longer, number, table, parts, counts, values, width,
        ends, found, taken):  # fmt: skip
    """Copy the entries, part after part, with indices counted from where their part begins.

    `rank` is None for two dimensions, `width` for one word a value. `table` has room for the part of each index along
    `axis`, or is empty: then each entry takes a division. `parts` has room for the part of each entry, `counts` for a
    number per part and one more, for each chunk on lines of its own. `ends` gets the place where each part ends. Tells
    whether an index is out of range; then nothing is copied.
    """
    seen = enter(workers)
    entries = parts.size
    stride = counts.size // chunks
    for _ in share(workers, 0, 1 if table.size > 0 else 0):
        for part in range(number):
            begin, stop = _begin(part, size, longer), _begin(part + 1, size, longer)
            for here in range(begin, min(stop, table.size)):
                poke(table, here, part)
    for chunk in share(workers, 1, chunks):
        base, wrong = chunk * stride, False
        fill_range(counts, base, base + number, 0)
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            for d in range(known(rank, 2)):
                here = peek(indices, i * known(rank, 2) + d)
                wrong |= (here < 0) | (here >= peek(limits, d))
            part = _part(peek_bounded(indices, i * known(rank, 2) + axis, peek(limits, axis)), size, longer, table)
            poke(parts, i, part)
            poke(counts, base + part, peek(counts, base + part) + 1)
        poke(counts, base + number, np.int64(wrong))
    for _ in share(workers, 2, 1):
        # From the counts of chunks to where the entries of each begin: part after part, chunk after chunk.
        place = np.int64(0)
        for part in range(number):
            for chunk in range(chunks):
                at = chunk * stride + part
                count = peek(counts, at)
                poke(counts, at, place)
                place += count
            poke(ends, part, place)
    outside = False
    for chunk in range(chunks):
        outside |= peek(counts, chunk * stride + number) != 0
    for chunk in share(workers, 3, 0 if outside else chunks):
        base = chunk * stride
        for i in range(chunk_start(chunk, chunks, entries), chunk_start(chunk + 1, chunks, entries)):
            own = np.int64(peek(parts, i))
            place = peek(counts, base + own)
            poke(counts, base + own, place + 1)
            for d in range(known(rank, 2)):
                shift = _begin(own, size, longer) if d == axis else np.int64(0)
                poke(found, place * known(rank, 2) + d, peek(indices, i * known(rank, 2) + d) - shift)
            for word in range(known(width, 1)):
                poke(taken, place * known(width, 1) + word, peek(values, i * known(width, 1) + word))
    leave(workers, seen)
    return outside
