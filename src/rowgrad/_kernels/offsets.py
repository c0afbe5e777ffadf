"""Kernels for bags that are given by where each begins."""

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.ids import bounded_id, read_id
from rowgrad._kernels.raw import poke
from rowgrad._kernels.team import chunk_start, claim, enter, finish, leave, lowest, wait


@kernel
def spread(team, chunks, offsets, step, bags, size, segment_ids, bad):
    """Write the number of its bag to each of `size` positions; returns the first bag that begins wrongly, or -1.

    Bags begin at 0, in ascending order, not past `size`. If one is wrong, nothing is written.
    """
    heard = enter(team)
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk] = -1
        first = chunk_start(chunk, chunks, bags)
        before = read_id(offsets, step, first - 1) if first > 0 else 0
        for bag in range(first, chunk_start(chunk + 1, chunks, bags)):
            begin = read_id(offsets, step, bag)
            if begin < before or begin > size or (bag == 0 and begin != 0):
                bad[chunk] = bag
                break
            before = begin
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    wrong = lowest(bad, chunks)
    if wrong >= 0:
        leave(team, heard)
        return wrong

    chunk = claim(team, 1)
    while chunk < chunks:
        for bag in range(chunk_start(chunk, chunks, bags), chunk_start(chunk + 1, chunks, bags)):
            end = bounded_id(offsets, step, bag + 1, size + 1) if bag + 1 < bags else size
            for position in range(bounded_id(offsets, step, bag, size + 1), end):
                poke(segment_ids, position, bag)
        finish(team, 1)
        chunk = claim(team, 1)
    wait(team, 1, chunks)
    leave(team, heard)
    return wrong
