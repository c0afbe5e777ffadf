"""Kernels of the forward segment operators: pool the rows of each segment.

Segment ids are sorted here, so segments are runs and nothing has to be sorted. The order of the additions is
TensorFlow's: the first few rows left to right, then blocks of eight rows that are summed by themselves.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.kinds import MEAN
from rowgrad._kernels.lanes import block_start, count, fetch, fill, load, put_result, zeros
from rowgrad._kernels.raw import fill_range, peek, peek_bounded
from rowgrad._kernels.sharing import atomic_add, chunk_start, enter, leave, lowest, share
from rowgrad._kernels.team import (
    COUNTERS,
    WITH_RANGES,
    at,
    claim,
    has_waited,
    leave_team,
    on_team,
    ranges_for,
    room,
    thread_number,
)

WORDS = np.empty(0, np.int64)
WRONG = COUNTERS - 1  # the counter of chunks that have a bad entry
LATE = -2  # all is well, but the team took long to come together
BLOCK = 8
SHORT = 10  # segments shorter than this are scaled by a product, longer ones by a division


@inline
def _any_wrong(indices, ids, first, last, rows, data_rows):
    """Whether an index is out of range, or an id is, or is smaller than the one before. (LLVM vectorises the loops.)"""
    if first >= last:
        return False
    wrong = (peek(ids, 0) < 0) | (peek(ids, last - 1) >= rows)
    for i in range(max(first, 1), last):
        wrong |= peek(ids, i) < peek(ids, i - 1)
    for i in range(first, last):
        wrong |= bool(np.uint64(peek(indices, i)) >= np.uint64(data_rows))
    return wrong


@inline
def row_of(lanes, indices, i, data_rows, data, width, column, ahead):
    """A block of columns of the row of entry `i`; that of the entry `ahead` of it is fetched, which is needed soon."""
    if ahead > 0:
        fetch(lanes, data, peek(indices, i + ahead) * width + column)
    return load(lanes, data, peek_bounded(indices, i, data_rows) * width + column)


@inline
def sum_segment(lanes, indices, first, last, limit, data_rows, data, width, column, ahead):
    """The first rows of a segment left to right, then blocks of eight rows, each summed by itself.

    Entries from `limit` on are not looked at; up to there, rows are fetched `ahead` entries before they are needed.
    """
    head = (last - first) % BLOCK
    if head < 2:
        head += BLOCK
    stop = min(first + head, last)
    near = min(ahead, limit - stop)
    total = row_of(lanes, indices, first, data_rows, data, width, column, near)
    i = first + 1
    while i < stop:
        total = total + row_of(lanes, indices, i, data_rows, data, width, column, near)
        i += 1
    while i < last:  # written out: LLVM would not unroll it
        near = min(ahead, limit - BLOCK - i)
        run = row_of(lanes, indices, i, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 1, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 2, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 3, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 4, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 5, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 6, data_rows, data, width, column, near)
        run = run + row_of(lanes, indices, i + 7, data_rows, data, width, column, near)
        total = total + run
        i += BLOCK
    return total


@inline
def scale_segment(total, length, kind):
    """The mean, or the sum divided by the root of the length."""
    if length > 1:
        divisor = np.float64(length) if kind == MEAN else np.sqrt(np.float64(length))
        if length < SHORT:
            total = total * (fill(total, 1) / fill(total, divisor))
        else:
            total = total / fill(total, divisor)
    return total


@inline
def _pool_columns(lanes, scaled, indices, first, last, data_rows, data, width, here, kind, output, nontemporal, segment,
                  ahead):  # fmt: skip
    """Pool a block of columns of one segment."""
    total = sum_segment(lanes, indices, first, last, indices.size, data_rows, data, width, here, ahead)
    if scaled is not None:
        total = scale_segment(total, last - first, kind)
    put_result(output, segment * width + here, total, nontemporal)


@inline
def _segment_end(ids, first, length, size):
    """Where the segment that begins at `first` ends; most likely it is `length` entries long, as the one before."""
    segment, last = peek(ids, first), first + length
    if last <= size and peek(ids, last - 1) == segment and (last == size or peek(ids, last) != segment):
        return last
    last = first + 1
    while last < size and peek(ids, last) == segment:
        last += 1
    return last


@inline
def pool_chunk(indices, ids, chunk, chunks, rows, data_rows, data, width, kind, lanes, wide, scaled, output,
                nontemporal, clear, ahead):  # fmt: skip
    """Pool the segments that begin in a chunk of the entries, and zero the rows between them if `clear`.

    Tells whether an entry of the chunk is bad; the output is not whole then.
    """
    size = indices.size
    first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
    wrong = _any_wrong(indices, ids, first, stop, rows, data_rows)
    while 0 < first < stop and peek(ids, first) == peek(ids, first - 1):
        first += 1  # this segment began in an earlier chunk, and is pooled there
    before = peek(ids, first - 1) if first > 0 else np.int64(-1)
    if wrong or before < -1 or before >= rows:
        return True
    length = 1
    while first < stop:
        # What was checked may have changed since.
        segment = peek(ids, first)
        if segment <= before or segment >= rows:
            return True
        last = _segment_end(ids, first, length, size)
        if clear and segment > before + 1:
            fill_range(output, (before + 1) * width, segment * width, 0)
        if wide is None:
            _pool_columns(lanes, scaled, indices, first, last, data_rows, data, count(lanes), 0, kind, output,
                          nontemporal, segment, ahead)  # fmt: skip
        else:
            for column in range(0, width, count(lanes)):
                _pool_columns(lanes, scaled, indices, first, last, data_rows, data, width,
                              block_start(lanes, column, width), kind, output, nontemporal, segment,
                              ahead)  # fmt: skip
        before, length, first = segment, last - first, last
    if clear and stop == size and before + 1 < rows:
        fill_range(output, (before + 1) * width, rows * width, 0)
    return False


@kernel
def pool(workers, chunks, indices, ids, rows, data_rows, data, width, kind, lanes_for, wide, scaled, output,
         nontemporal, clear, ahead, check_first, bad):  # fmt: skip
    """Pool into `output`; returns -1, or a position before the first bad entry.

    If `check_first`, nothing is written then. It takes a little longer: entries are read twice, and threads wait for
    each other in between.

    `lanes_for` tells how wide vectors are (see `lanes`); `wide` is None if one vector holds a row, and `scaled` is None
    for sums. `bad` has room for a position per chunk. Rows without a segment are zeroed if `clear`. If `nontemporal`,
    results are written by non-temporal stores. Rows of the table are fetched `ahead` entries before they are needed; 0
    is for tables that are in the caches anyway.
    """
    seen = enter(workers)
    size = indices.size
    lanes = zeros(lanes_for)
    if check_first:
        for chunk in share(workers, 0, chunks):
            first, last = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
            bad[chunk] = first if _any_wrong(indices, ids, first, last, rows, data_rows) else -1
        wrong = lowest(bad, chunks)
        if wrong >= 0:
            leave(workers, seen)
            return wrong

    for chunk in share(workers, 1, chunks):
        wrong = pool_chunk(indices, ids, chunk, chunks, rows, data_rows, data, width, kind, lanes, wide, scaled,
                            output, nontemporal, clear, ahead)  # fmt: skip
        bad[chunk] = chunk_start(chunk, chunks, size) if wrong else -1
    leave(workers, seen)
    return lowest(bad, chunks)


@inline
def _pool_part(run_parallel, counters, ranges, chunks, indices, ids, rows, data_rows, data, width, kind, lanes_for,
               wide, scaled, output, ahead):  # fmt: skip
    """What a thread of a team does. The team comes together at the end, so chunks are claimed and not waited for."""
    shared, own = at(WORDS, counters), thread_number(run_parallel)
    chunk = claim(shared, own, ranges, chunks)
    while chunk >= 0:
        if pool_chunk(indices, ids, chunk, chunks, rows, data_rows, data, width, kind, zeros(lanes_for), wide, scaled,
                       output, False, True, ahead):  # fmt: skip
            atomic_add(shared, WRONG, 1)
        chunk = claim(shared, own, ranges, chunks)
    leave_team(shared)


@kernel
def pool_small(run_parallel, threads, chunks, indices, ids, rows, data_rows, data, width, kind, lanes_for, wide, scaled,
               output, ahead):  # fmt: skip
    """The same with fewer arguments and no counters to make: for small calls these take longer than the work.

    It is done by this thread alone if `run_parallel` is None, else by that team (see `team`). Gives -1, or LATE if the
    team was late, or a position before the first bad entry.
    """
    if run_parallel is None:
        wrong = pool_chunk(indices, ids, 0, 1, rows, data_rows, data, width, kind, zeros(lanes_for), wide, scaled,
                            output, False, True, ahead)  # fmt: skip
        return np.int64(0 if wrong else -1)
    counters = room(WITH_RANGES)
    on_team(run_parallel, threads, _pool_part,
            (run_parallel, counters, ranges_for(threads, chunks), chunks, indices, ids, rows, data_rows, data, width,
             kind, lanes_for, wide, scaled, output, ahead))  # fmt: skip
    shared = at(WORDS, counters)
    if peek(shared, WRONG) != 0:
        return np.int64(0)
    return np.int64(LATE if has_waited(shared) else -1)
