"""Sorting ids: which entries meet in which row.

The (row, partner) pairs of a call are packed into one 64-bit word each while they are checked and counted, then
sorted by row with a stable radix sort. Entries of a row stay in input order, which is what makes sums exact to the
bit. A word is the row shifted left by `shift`, then the partner.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.ids import read_id
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.team import add_up, atomic_add, chunk_start, claim, enter, finish, leave, lowest, wait

# More bits a pass touch more pages at a time than the TLB holds; fewer need more passes.
MOST_DIGIT_BITS = 10

# What is counted while packing: nothing (0), partners, or rows.
COUNT_PARTNERS, COUNT_ROWS = 1, 2

# What `sort` tells in its `info` array.
BAD, BUFFER, DISTINCT, ORDERED = 0, 1, 2, 3

BLOCK = 2048


@inline
def _count_digits(words, first, last, low, mask, histogram, base):
    for i in range(first, last):
        place = base + ((peek(words, i) >> low) & mask)
        poke(histogram, place, peek(histogram, place) + 1)


@inline
def _scan(histogram, chunks, buckets):
    """Turn the counts of (chunk, digit) into the first position of each, digit by digit, chunk by chunk."""
    position = np.int64(0)
    for digit in range(buckets):
        for chunk in range(chunks):
            here = peek(histogram, chunk * buckets + digit)
            poke(histogram, chunk * buckets + digit, position)
            position += here


@inline
def _pack(rows, row_step, partners, partner_step, row_limit, partner_limit, shift, words, first, last):
    """Pack a block; returns whether an entry is out of range. (Simple enough for LLVM to vectorise.)"""
    wrong = False
    for i in range(first, last):
        row = read_id(rows, row_step, i)
        partner = read_id(partners, partner_step, i) if partner_step > 0 else np.int64(i)
        wrong |= (row < 0) | (row >= row_limit) | (partner < 0) | (partner >= partner_limit)
        poke(words, i, (row << shift) | partner)
    return wrong


@inline
def _first_bad(rows, row_step, partners, partner_step, row_limit, partner_limit, first, last):
    """The first wrong position of a block in which one was found; `first` if another thread has corrected it since."""
    for i in range(first, last):
        row = read_id(rows, row_step, i)
        partner = read_id(partners, partner_step, i) if partner_step > 0 else np.int64(i)
        if row < 0 or row >= row_limit or partner < 0 or partner >= partner_limit:
            return i
    return first


@inline
def _is_sorted(words, shift, first, last):
    """Whether the rows from `first` to `last` do not decrease, nor from the one before."""
    falls = False
    for i in range(max(first, 1), last):
        falls |= peek(words, i) >> shift < peek(words, i - 1) >> shift
    return not falls


@inline
def _count_ids(words, first, last, low, mask, counts, shared):
    """Count ids; equal neighbours are counted together, so that sorted ids cost hardly anything."""
    run_of = (peek(words, first) >> low) & mask
    run = np.int64(0)
    for i in range(first, last):
        here = (peek(words, i) >> low) & mask
        if here != run_of:
            if shared:
                atomic_add(counts, run_of, run)
            else:
                poke(counts, run_of, peek(counts, run_of) + run)
            run_of = here
            run = np.int64(0)
        run += 1
    atomic_add(counts, run_of, run)


@kernel
def sort(team, chunks, strips, rows, row_step, partners, partner_step, row_limit, partner_limit, shift, passes,
         digit_bits, first_words, second_words, histogram, counted, counts, bad, row_starts, info):  # fmt: skip
    """Pack, check and sort; `first_words` or `second_words` (see `info[BUFFER]`) holds the sorted words.

    A `partner_step` of 0 makes each entry's partner its own position. `row_starts[chunk]` becomes the number of
    distinct rows before the chunk. On a bad entry `info[BAD]` is its position and nothing else is meant.
    """
    heard = enter(team)
    size = first_words.size
    buckets = 1 << digit_bits
    mask = np.int64(buckets - 1)
    partner_mask = (np.int64(1) << shift) - 1
    strip = claim(team, 0)
    while strip < strips:
        bad[strip] = -1
        base = strip * buckets
        histogram[base : base + buckets] = 0
        first = chunk_start(strip, strips, size)
        stop = chunk_start(strip + 1, strips, size)
        while first < stop:
            last = min(first + BLOCK, stop)
            if _pack(rows, row_step, partners, partner_step, row_limit, partner_limit, shift, first_words, first,
                     last):  # fmt: skip
                bad[strip] = _first_bad(rows, row_step, partners, partner_step, row_limit, partner_limit, first, last)
                break
            _count_digits(first_words, first, last, shift, mask, histogram, base)
            if counted == COUNT_PARTNERS:
                _count_ids(first_words, first, last, np.int64(0), partner_mask, counts, strips > 1)
            elif counted == COUNT_ROWS:
                _count_ids(first_words, first, last, shift, np.int64(-1), counts, strips > 1)
            first = last
        finish(team, 0)
        strip = claim(team, 0)
    wait(team, 0, strips)

    # Ids that come sorted are common (segments, rows of a matrix), and one look at them is cheap.
    strip = claim(team, 1)
    while strip < strips:
        bad[strips + strip] = _is_sorted(
            first_words, shift, chunk_start(strip, strips, size), chunk_start(strip + 1, strips, size)
        )
        finish(team, 1)
        strip = claim(team, 1)
    wait(team, 1, strips)
    if claim(team, 2) == 0:
        info[ORDERED] = 1
        info[BAD] = lowest(bad, strips)
        for strip in range(strips):
            if bad[strips + strip] == 0:
                info[ORDERED] = 0
        _scan(histogram, strips, buckets)
        finish(team, 2)
    wait(team, 2, 1)
    if info[BAD] >= 0:
        leave(team, heard)
        return

    source, target = first_words, second_words
    phase = 3
    if info[ORDERED] == 0:
        for digit in range(passes):
            low = shift + digit * digit_bits
            if digit > 0:
                strip = claim(team, phase)
                while strip < strips:
                    base = strip * buckets
                    histogram[base : base + buckets] = 0
                    _count_digits(source, chunk_start(strip, strips, size), chunk_start(strip + 1, strips, size), low,
                                  mask, histogram, base)  # fmt: skip
                    finish(team, phase)
                    strip = claim(team, phase)
                wait(team, phase, strips)
                if claim(team, phase + 1) == 0:
                    _scan(histogram, strips, buckets)
                    finish(team, phase + 1)
                wait(team, phase + 1, 1)
                phase += 2
            strip = claim(team, phase)
            while strip < strips:
                base = strip * buckets
                for i in range(chunk_start(strip, strips, size), chunk_start(strip + 1, strips, size)):
                    word = peek(source, i)
                    place = base + ((word >> low) & mask)
                    position = peek(histogram, place)
                    poke(target, position, word)
                    poke(histogram, place, position + 1)
                finish(team, phase)
                strip = claim(team, phase)
            wait(team, phase, strips)
            phase += 1
            source, target = target, source

    chunk = claim(team, phase)
    while chunk < chunks:
        first = chunk_start(chunk, chunks, size)
        stop = chunk_start(chunk + 1, chunks, size)
        distinct = np.int64(first == 0 < stop)
        for i in range(max(first, 1), stop):
            distinct += peek(source, i) >> shift != peek(source, i - 1) >> shift
        row_starts[chunk] = distinct
        finish(team, phase)
        chunk = claim(team, phase)
    wait(team, phase, chunks)
    if claim(team, phase + 1) == 0:
        info[DISTINCT] = add_up(row_starts, chunks)
        info[BUFFER] = 0 if info[ORDERED] != 0 else passes % 2
        finish(team, phase + 1)
    wait(team, phase + 1, 1)
    leave(team, heard)
