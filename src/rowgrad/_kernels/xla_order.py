"""The sort that kernels called by XLA begin gradients with: `order.pack` and `order.sort`, in memory of the call."""

import numpy as np

from rowgrad._kernels.compile import inline_late, part_of
from rowgrad._kernels.kinds import CHUNKS_PER_THREAD
from rowgrad._kernels.order import BAD, BUFFER, COUNT_PARTNERS, COUNT_ROWS, MOST_DIGIT_BITS, ORDERED, pack, sort
from rowgrad._kernels.raw import peek
from rowgrad._kernels.xla_frame import MOST_THREADS, WORDS, kept_at, shared_words, sized, workers_at

_pack, _sort = part_of(pack), part_of(sort)
ORDER_KERNELS, SORTED_KERNELS = 2, 5  # that the sort has, and that bodies which begin with it have at most
INFO = 4
MOST_CHUNKS = MOST_THREADS * (CHUNKS_PER_THREAD + 1) + INFO  # words for each chunk and strip, and info
SORTED_WORDS = shared_words(SORTED_KERNELS, MOST_CHUNKS)


@inline_late
def bits_of(limit):
    """How many bits numbers below `limit` have."""
    bits = np.int64(0)
    while bits < 63 and (limit - 1) >> bits > 0:
        bits += 1
    return bits


@inline_late
def _passes(row_limit):
    return -(-bits_of(row_limit) // MOST_DIGIT_BITS)


@inline_late
def _digit_bits(row_limit):
    passes = _passes(row_limit)
    return -(-bits_of(row_limit) // passes) if passes > 0 else np.int64(0)


@inline_late
def order_bytes(size, row_limit, threads, counted):
    """Bytes of scratch memory that `order` needs, with room for `counted` counts."""
    return 8 * (2 * size + (threads << _digit_bits(row_limit)) + counted + MOST_CHUNKS)


@inline_late
def counts_at(scratch, size, counted):
    """The counts that `order` leaves in its scratch memory."""
    return sized(WORDS, scratch + 8 * (2 * size + MOST_CHUNKS), counted)


@inline_late
def starts_at(scratch, size, chunks):
    """How many distinct rows `order` has found before each chunk."""
    return sized(WORDS, scratch + 16 * size, chunks)


@inline_late
def info_at(shared):
    """What `order` tells of its words (see `order.sort`)."""
    return sized(WORDS, kept_at(shared, SORTED_KERNELS), INFO)


@inline_late
def order(shared, chunks, strips, rows, partners, row_limit, partner_limit, scratch, size, counted):
    """Words sorted by row, their shift, and whether an id is out of range; info is among the shared words.

    Partners may be None: then they are the positions of the entries. The counts of what `counted` says, if anything,
    must be 0 before; there is one for each partner or row.
    """
    number = partner_limit if counted == COUNT_PARTNERS else row_limit if counted == COUNT_ROWS else np.int64(0)
    shift, passes, digit_bits = bits_of(partner_limit), _passes(row_limit), _digit_bits(row_limit)
    first, second = sized(WORDS, scratch, size), sized(WORDS, scratch + 8 * size, size)
    counts = counts_at(scratch, size, number)
    histogram = sized(WORDS, scratch + 8 * (2 * size + MOST_CHUNKS + number), strips << digit_bits)
    starts = starts_at(scratch, size, chunks)
    info, bad = info_at(shared), sized(WORDS, kept_at(shared, SORTED_KERNELS) + 8 * INFO, MOST_CHUNKS - INFO)
    _pack(workers_at(shared, 0), chunks, strips, rows, partners, row_limit, partner_limit, shift, digit_bits, first,
         histogram, counted, counts, bad, starts, info)  # fmt: skip
    if peek(info, BAD) >= 0:
        return first, shift, True
    if peek(info, ORDERED) == 0:
        _sort(workers_at(shared, 1), chunks, strips, shift, passes, digit_bits, first, second, histogram, starts, info)
    return (second if peek(info, BUFFER) == 1 else first), shift, False
