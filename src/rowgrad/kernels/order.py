"""Sorting ids: which entries meet in which row.

The (row, partner) pairs of a call are packed into one 64-bit word each while they are checked and counted, then
sorted by row with a stable radix sort of at most 8 bits a pass: more would touch more pages at a time than the
TLB holds. Entries of a row stay in input order, which is what makes sums exact to the bit.
A word is the row shifted left by `shift`, then the partner.
"""

import numpy as np

from rowgrad.kernels.compile import inline, kernel
from rowgrad.kernels.ids import read_id
from rowgrad.kernels.team import atomic_add, chunk_start, claim, finish, wait

DIGIT_BITS = 8
BUCKETS = 1 << DIGIT_BITS

# What `sort` tells in its `info` array.
BAD, BUFFER, DISTINCT, ORDERED = 0, 1, 2, 3
INFO = 4


@inline
def _scan(histogram, chunks):
    """Turn the counts of (chunk, digit) into the first position of each, digit by digit, chunk by chunk."""
    position = 0
    for digit in range(BUCKETS):
        for chunk in range(chunks):
            here = histogram[chunk * BUCKETS + digit]
            histogram[chunk * BUCKETS + digit] = position
            position += here


@inline
def _pack_chunk(rows, row_step, partners, partner_step, row_limit, partner_limit, shift, mask,
                words, histogram, counts, shared, chunk, first, last):  # fmt: skip
    """Check, count and pack the entries from `first` to `last`; returns (first bad position or -1, is sorted)."""
    base = chunk * BUCKETS
    before = np.int64(-1)
    ordered = True
    run_of = np.int64(0)
    run = 0
    for i in range(first, last):
        row = read_id(rows, row_step, i)
        partner = read_id(partners, partner_step, i) if partner_step > 0 else np.int64(i)
        if row < 0 or row >= row_limit or partner < 0 or partner >= partner_limit:
            return i, False
        words[i] = (row << shift) | partner
        histogram[base + (row & mask)] += 1
        ordered &= row >= before
        before = row
        if counts.size > 0:
            # Equal neighbours are counted together, so that sorted segment ids cost hardly anything.
            if partner != run_of:
                if shared:
                    atomic_add(counts, run_of, run)
                else:
                    counts[run_of] += run
                run_of = partner
                run = 0
            run += 1
    if run > 0:
        atomic_add(counts, run_of, run)
    return -1, ordered


@inline
def _join(words, shift, bad, sorted_chunks, chunks, size, info):
    """Sum up the chunks of the packing: the lowest bad position, and whether all is sorted already."""
    ordered = True
    for chunk in range(chunks):
        if bad[chunk] >= 0:
            info[BAD] = bad[chunk]
            return
        first = chunk_start(chunk, chunks, size)
        ordered &= sorted_chunks[chunk] != 0
        if first > 0:
            ordered &= words[first - 1] >> shift <= words[first] >> shift
    info[ORDERED] = ordered


@kernel
def sort(team, chunks, rows, row_step, partners, partner_step, row_limit, partner_limit, shift, passes, digit_bits,
         first_words, second_words, histogram, counts, bad, sorted_chunks, row_starts, info):  # fmt: skip
    """Pack, check and sort; `first_words` or `second_words` (see `info[BUFFER]`) holds the sorted words.

    A `partner_step` of 0 makes each entry's partner its own position. `row_starts[chunk]` becomes the number of
    distinct rows before the chunk. On a bad entry `info[BAD]` is its position and nothing else is meant.
    """
    size = first_words.size
    mask = (1 << digit_bits) - 1
    chunk = claim(team, 0)
    while chunk < chunks:
        bad[chunk], sorted_chunks[chunk] = _pack_chunk(
            rows, row_step, partners, partner_step, row_limit, partner_limit, shift, mask, first_words, histogram,
            counts, chunks > 1, chunk, chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size),
        )  # fmt: skip
        finish(team, 0)
        chunk = claim(team, 0)
    wait(team, 0, chunks)
    if claim(team, 1) == 0:
        _join(first_words, shift, bad, sorted_chunks, chunks, size, info)
        _scan(histogram, chunks)
        finish(team, 1)
    wait(team, 1, 1)
    if info[BAD] >= 0:
        return

    source, target = first_words, second_words
    phase = 2
    if info[ORDERED] == 0:
        for digit in range(passes):
            low = shift + digit * digit_bits
            if digit > 0:
                chunk = claim(team, phase)
                while chunk < chunks:
                    base = chunk * BUCKETS
                    histogram[base : base + BUCKETS] = 0
                    for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
                        histogram[base + ((source[i] >> low) & mask)] += 1
                    finish(team, phase)
                    chunk = claim(team, phase)
                wait(team, phase, chunks)
                if claim(team, phase + 1) == 0:
                    _scan(histogram, chunks)
                    finish(team, phase + 1)
                wait(team, phase + 1, 1)
                phase += 2
            chunk = claim(team, phase)
            while chunk < chunks:
                base = chunk * BUCKETS
                for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
                    word = source[i]
                    place = base + ((word >> low) & mask)
                    target[histogram[place]] = word
                    histogram[place] += 1
                finish(team, phase)
                chunk = claim(team, phase)
            wait(team, phase, chunks)
            phase += 1
            source, target = target, source

    chunk = claim(team, phase)
    while chunk < chunks:
        distinct = 0
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            distinct += i == 0 or source[i] >> shift != source[i - 1] >> shift
        row_starts[chunk] = distinct
        finish(team, phase)
        chunk = claim(team, phase)
    wait(team, phase, chunks)
    if claim(team, phase + 1) == 0:
        total = 0
        for chunk in range(chunks):
            here = row_starts[chunk]
            row_starts[chunk] = total
            total += here
        info[DISTINCT] = total
        info[BUFFER] = 0 if info[ORDERED] != 0 else passes % 2
        finish(team, phase + 1)
    wait(team, phase + 1, 1)
