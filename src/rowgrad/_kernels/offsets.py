"""Kernels for bags that are given by where each begins."""

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.raw import peek, peek_bounded, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share


@kernel
def spread(workers, chunks, offsets, size, segment_ids, bad):
    """Write the number of its bag to each of `size` positions; returns the first bag that begins wrongly, or -1.

    Bags begin at 0, in ascending order, not past `size`. If one is wrong, nothing is written.
    """
    seen = enter(workers)
    bags = offsets.size
    for chunk in share(workers, 0, chunks):
        bad[chunk] = -1
        first = chunk_start(chunk, chunks, bags)
        before = peek(offsets, first - 1) if first > 0 else 0
        for bag in range(first, chunk_start(chunk + 1, chunks, bags)):
            begin = peek(offsets, bag)
            if begin < before or begin > size or (bag == 0 and begin != 0):
                bad[chunk] = bag
                break
            before = begin
    wrong = lowest(bad, chunks)
    if wrong < 0:
        for chunk in share(workers, 1, chunks):
            for bag in range(chunk_start(chunk, chunks, bags), chunk_start(chunk + 1, chunks, bags)):
                end = peek_bounded(offsets, bag + 1, size + 1) if bag + 1 < bags else size
                for position in range(peek_bounded(offsets, bag, size + 1), end):
                    poke(segment_ids, position, bag)
    leave(workers, seen)
    return wrong
