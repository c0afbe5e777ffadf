"""Sorting ids: which entries meet in which row.

The (row, partner) pairs of a call are packed into one 64-bit word each while they are checked and counted, then
sorted by row with a stable radix sort. Entries of a row stay in input order, which is what makes sums exact to the
bit. A word is the row shifted left by `shift`, then the partner.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.raw import fill_range, peek, poke
from rowgrad._kernels.sharing import add_up, atomic_add, chunk_start, enter, leave, lowest, share

# More bits a pass touch more pages at a time than the TLB holds; fewer need more passes.
MOST_DIGIT_BITS = 10

# What is counted while packing: nothing (0), partners, or rows.
COUNT_PARTNERS, COUNT_ROWS = 1, 2

# What `sort` tells in its `info` array.
BAD, BUFFER, DISTINCT, ORDERED = 0, 1, 2, 3

BLOCK = 2048


@inline
def _pack(rows, partners, row_limit, partner_limit, shift, words, first, last):
    """Pack a block; returns whether an entry is out of range. (Simple enough for LLVM to vectorise.)"""
    wrong = False
    for i in range(first, last):
        row = peek(rows, i)
        partner = np.int64(i) if partners is None else peek(partners, i)
        wrong |= (row < 0) | (row >= row_limit) | (partner < 0) | (partner >= partner_limit)
        poke(words, i, (row << shift) | partner)
    return wrong


@inline
def _count_ids(words, first, last, low, mask, counts, base, shared):
    """Count ids; equal neighbours are counted together, so that sorted ids cost hardly anything."""
    run_of = base + ((peek(words, first) >> low) & mask)
    run = np.int64(0)
    for i in range(first, last):
        here = base + ((peek(words, i) >> low) & mask)
        if here != run_of:
            if shared:
                atomic_add(counts, run_of, run)
            else:
                poke(counts, run_of, peek(counts, run_of) + run)
            run_of = here
            run = np.int64(0)
        run += 1
    atomic_add(counts, run_of, run)


@inline
def _count_digits(words, first, last, low, mask, histogram, base):
    for i in range(first, last):
        place = base + ((peek(words, i) >> low) & mask)
        poke(histogram, place, peek(histogram, place) + 1)


@kernel
def pack(workers, chunks, strips, rows, partners, row_limit, partner_limit, shift, digit_bits, words, histogram,
         counted, counts, bad, starts, info):  # fmt: skip
    """Pack and check the pairs into `words`; see whether they come sorted, and count.

    Without `partners`, each entry's partner is its own position. `histogram` counts the lowest digit of the rows,
    strip by strip; `starts[chunk]` becomes the number of distinct rows before the chunk, if they come sorted. On a bad
    entry `info[BAD]` is the position of its block and nothing else is meant. `bad` has room for a number per strip and
    per chunk. `counts` comes as zeros; where it has room for the counts of each strip, they are added up in the first.
    """
    seen = enter(workers)
    size = words.size
    buckets = 1 << digit_bits
    limit = partner_limit if counted == COUNT_PARTNERS else row_limit
    is_apart = counted != 0 and counts.size > limit
    for strip in share(workers, 0, strips):
        poke(bad, strip, -1)
        fill_range(histogram, strip * buckets, (strip + 1) * buckets, 0)
        first, stop = chunk_start(strip, strips, size), chunk_start(strip + 1, strips, size)
        while first < stop:
            last = min(first + BLOCK, stop)
            if _pack(rows, partners, row_limit, partner_limit, shift, words, first, last):
                poke(bad, strip, first)
                break
            _count_digits(words, first, last, shift, np.int64(buckets - 1), histogram, strip * buckets)
            if counted != 0:
                low = np.int64(0) if counted == COUNT_PARTNERS else shift
                mask = (np.int64(1) << shift) - 1 if counted == COUNT_PARTNERS else np.int64(-1)
                base = strip * limit if is_apart else np.int64(0)
                _count_ids(words, first, last, low, mask, counts, base, strips > 1 and not is_apart)
            first = last
    # Ids that come sorted are common (segments, rows of a matrix), and one look at them is cheap.
    for chunk in share(workers, 1, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        falls, distinct = False, np.int64(first == 0 < stop)
        for i in range(max(first, 1), stop):
            falls |= peek(words, i) >> shift < peek(words, i - 1) >> shift
            distinct += peek(words, i) >> shift != peek(words, i - 1) >> shift
        poke(bad, strips + chunk, falls)
        poke(starts, chunk, distinct)
        if is_apart:
            for here in range(chunk_start(chunk, chunks, limit), chunk_start(chunk + 1, chunks, limit)):
                for strip in range(1, strips):
                    poke(counts, here, peek(counts, here) + peek(counts, strip * limit + here))
    for _ in share(workers, 2, 1):
        ordered = True
        for chunk in range(chunks):
            ordered &= peek(bad, strips + chunk) == 0
        poke(info, BAD, lowest(bad, strips))
        poke(info, ORDERED, ordered)
        poke(info, DISTINCT, add_up(starts, chunks))
    leave(workers, seen)


@kernel
def sort(workers, chunks, strips, shift, passes, digit_bits, first_words, second_words, histogram, starts, info):
    """Sort packed words by row, whose lowest digit is counted; `info[BUFFER]` tells which of the two holds them then.

    `starts[chunk]` becomes the number of distinct rows before the chunk.
    """
    seen = enter(workers)
    size = first_words.size
    buckets = 1 << digit_bits
    mask = np.int64(buckets - 1)
    source, target = first_words, second_words
    phase = 0
    for digit in range(passes):
        low = shift + digit * digit_bits
        if digit > 0:
            for strip in share(workers, phase, strips):
                base = strip * buckets
                fill_range(histogram, base, base + buckets, 0)
                _count_digits(source, chunk_start(strip, strips, size), chunk_start(strip + 1, strips, size), low,
                              mask, histogram, base)  # fmt: skip
            phase += 1
        # The counts of (strip, digit) become the first position of each, digit by digit, strip by strip.
        for _ in share(workers, phase, 1):
            position = np.int64(0)
            for bucket in range(buckets):
                for strip in range(strips):
                    here = peek(histogram, strip * buckets + bucket)
                    poke(histogram, strip * buckets + bucket, position)
                    position += here
        for strip in share(workers, phase + 1, strips):
            base = strip * buckets
            for i in range(chunk_start(strip, strips, size), chunk_start(strip + 1, strips, size)):
                word = peek(source, i)
                place = base + ((word >> low) & mask)
                position = peek(histogram, place)
                poke(target, position, word)
                poke(histogram, place, position + 1)
        phase += 2
        source, target = target, source

    for chunk in share(workers, phase, chunks):
        first, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        distinct = np.int64(first == 0 < stop)
        for i in range(max(first, 1), stop):
            distinct += peek(source, i) >> shift != peek(source, i - 1) >> shift
        poke(starts, chunk, distinct)
    for _ in share(workers, phase + 1, 1):
        poke(info, DISTINCT, add_up(starts, chunks))
        poke(info, BUFFER, passes % 2)
    leave(workers, seen)
