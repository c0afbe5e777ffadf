"""Rows by key: hash tables with open addressing, and the counts that decide which new keys get a row.

A table of slots is one array of pairs: a key (or the hash of a string) and the row + 1, 0 where the slot is free. There
are always free slots, so a search ends. Slots are found by a hash with a seed of the process, so that nobody can choose
keys that collide; rows are given in the order of the input, so they do not depend on it.
"""

import numpy as np

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.hashes import _word8, bounded, fingerprint_at, sip_at
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

U = np.uint64
AHEAD = 16  # keys whose slots are fetched before they are needed
LENGTH = 2  # bytes before each string of a record: how long it is
BACK, TOP = 0, 1  # of `place`: rows that were given back and are used again; the first row that was never used
ADDITIONS, REFUSED = 1, 2  # of `numbers`
SATURATED = 255


@inline
def _spread(key, seed):
    """MurmurHash3's finalizer: every bit of the key changes every bit of the hash."""
    value = U(key) ^ seed
    value = (value ^ value >> U(33)) * U(0xFF51AFD7ED558CCD)
    value = (value ^ value >> U(33)) * U(0xC4CEB9FE1A85EC53)
    return value ^ value >> U(33)


@inline
def _slot_of(slots, mask, at, key):
    """The slot with `key`, or the free one where it belongs."""
    at &= mask
    while peek(slots, 2 * at + 1) != 0 and peek(slots, 2 * at) != key:
        at = (at + 1) & mask
    return at


@inline
def _put(slots, at, key, row):
    poke(slots, 2 * at, key)
    poke(slots, 2 * at + 1, row + 1)


@kernel
def find_keys(workers, chunks, slots, mask, seed, keys, missing, output):
    """The row of each key, or `missing`."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, output.size), chunk_start(chunk + 1, chunks, output.size)
        for i in range(first, min(first + AHEAD, last)):
            prefetch(slots, 2 * (np.int64(_spread(peek(keys, i), seed)) & mask))
        for i in range(first, last):
            if i + AHEAD < last:
                prefetch(slots, 2 * (np.int64(_spread(peek(keys, i + AHEAD), seed)) & mask))
            key = peek(keys, i)
            at = _slot_of(slots, mask, np.int64(_spread(key, seed)), key)
            row = peek(slots, 2 * at + 1) - 1
            poke(output, i, row if row >= 0 else missing)
    leave(workers, seen)


@inline
def _is_admitted(sketch, hash_, admit_after, numbers):
    """Count a key that has no row in four places, the least of which is at least its true count; then judge it."""
    if admit_after <= 1:
        return True
    width = sketch.size >> 2
    least: int = SATURATED
    for row in range(4):
        at = row * width + np.int64(_spread(hash_, U(row + 1) * U(0x9E3779B97F4A7C15)) & U(width - 1))
        least = min(least, int(sketch[at]))
    for row in range(4):
        at = row * width + np.int64(_spread(hash_, U(row + 1) * U(0x9E3779B97F4A7C15)) & U(width - 1))
        if int(sketch[at]) == least and least < SATURATED:
            sketch[at] = least + 1
    numbers[ADDITIONS] += 1
    if numbers[ADDITIONS] >= 8 * width:  # keys of long ago fade, so that counts do not fill up
        numbers[ADDITIONS] = 0
        for at in range(sketch.size):
            sketch[at] >>= 1
    return least + 1 >= admit_after


@inline
def _new_row(given_back, place, limit):
    """The least row without a key, or -1."""
    if place[BACK] < given_back.size:
        place[BACK] += 1
        return given_back[place[BACK] - 1]
    if place[TOP] < limit:
        place[TOP] += 1
        return place[TOP] - 1
    return np.int64(-1)


@kernel
def add_keys(slots, mask, seed, keys, missing, stored, seen, count, clock, admit_after, sketch, numbers, given_back,
             place, output):  # fmt: skip
    """The row of each key; those without get one, in the order of the input, if they are admitted and one is free."""
    size = output.size
    for i in range(min(AHEAD, size)):
        prefetch(slots, 2 * (np.int64(_spread(peek(keys, i), seed)) & mask))
    for i in range(size):
        if i + AHEAD < size:
            prefetch(slots, 2 * (np.int64(_spread(peek(keys, i + AHEAD), seed)) & mask))
        key = peek(keys, i)
        at = _slot_of(slots, mask, np.int64(_spread(key, seed)), key)
        row = peek(slots, 2 * at + 1) - 1
        if row < 0:
            if not _is_admitted(sketch, key, admit_after, numbers):
                poke(output, i, missing)
                continue
            row = _new_row(given_back, place, stored.size)
            if row < 0:
                numbers[REFUSED] += 1
                poke(output, i, missing)
                continue
            _put(slots, at, key, row)
            stored[row] = key
            count[row] = 0
        seen[row] = clock + 1
        count[row] += 1
        poke(output, i, row)


@kernel
def index_keys(slots, mask, seed, stored, seen, top):
    """Put all keys that have a row into empty slots; returns how many they are, or -1 if one is there twice."""
    found = 0
    for row in range(min(top, stored.size)):
        if seen[row] != 0:
            key = peek(stored, row)
            at = _slot_of(slots, mask, np.int64(_spread(key, seed)), key)
            if peek(slots, 2 * at + 1) != 0:
                return -1
            _put(slots, at, key, row)
            found += 1
    return found


# Strings: slots hold a keyed hash, and records (two bytes of length, then the bytes) tell whether it is the string.


@inline
def _is_record(records, width, row, data, at, length):
    begin = row * width
    if np.int64(_word8(records, begin)) | np.int64(_word8(records, begin + 1)) << 8 != length:
        return False
    for k in range(length):
        if _word8(records, begin + LENGTH + k) != _word8(data, at + k):
            return False
    return True


@inline
def _slot_of_text(slots, mask, hash_, records, width, rows, data, at, length):
    place = hash_ & mask
    while True:
        row = min(peek(slots, 2 * place + 1) - 1, rows - 1)
        if row < 0 or (peek(slots, 2 * place) == hash_ and _is_record(records, width, row, data, at, length)):
            return place
        place = (place + 1) & mask


@kernel
def find_texts(workers, chunks, slots, mask, hashes, records, width, rows, data, begins, ends, missing, output):
    """The row of each string, or `missing`."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        first, last = chunk_start(chunk, chunks, output.size), chunk_start(chunk + 1, chunks, output.size)
        for i in range(first, min(first + AHEAD, last)):
            prefetch(slots, 2 * (np.int64(peek(hashes, i)) & mask))
        for i in range(first, last):
            if i + AHEAD < last:
                prefetch(slots, 2 * (np.int64(peek(hashes, i + AHEAD)) & mask))
            if i + AHEAD // 2 < last:  # most slots are right at once: then their record is next
                near = 2 * (np.int64(peek(hashes, i + AHEAD // 2)) & mask)
                prefetch(records, (peek(slots, near + 1) - 1) * width)
            at, length = bounded(begins, ends, i, data.size)
            hash_ = np.int64(peek(hashes, i))
            place = _slot_of_text(slots, mask, hash_, records, width, rows, data, at, length)
            row = peek(slots, 2 * place + 1) - 1
            poke(output, i, row if row >= 0 else missing)
    leave(workers, seen)


@kernel
def add_texts(slots, mask, hashes, data, begins, ends, missing, records, width, rows, seen, count, clock, admit_after,
              sketch, numbers, given_back, place, output):  # fmt: skip
    """The row of each string, as `add_keys` has it for numbers; strings longer than a record get none."""
    size = output.size
    for i in range(size):
        if i + AHEAD < size:
            prefetch(slots, 2 * (np.int64(peek(hashes, i + AHEAD)) & mask))
        at, length = bounded(begins, ends, i, data.size)
        if length > width - LENGTH:
            poke(output, i, missing)
            continue
        hash_ = np.int64(peek(hashes, i))
        slot = _slot_of_text(slots, mask, hash_, records, width, rows, data, at, length)
        row = peek(slots, 2 * slot + 1) - 1
        if row < 0:
            # Counts are by a hash that is the same in every process.
            if not _is_admitted(sketch, fingerprint_at(data, at, length), admit_after, numbers):
                poke(output, i, missing)
                continue
            row = _new_row(given_back, place, rows)
            if row < 0:
                numbers[REFUSED] += 1
                poke(output, i, missing)
                continue
            _put(slots, slot, hash_, row)
            begin = row * width
            records[begin], records[begin + 1] = length & 255, length >> 8
            for k in range(width - LENGTH):
                records[begin + LENGTH + k] = data[at + k] if k < length else 0
            count[row] = 0
        seen[row] = clock + 1
        count[row] += 1
        poke(output, i, row)


@kernel
def index_texts(slots, mask, key0, key1, records, width, rows, seen, top):
    """Put all strings that have a row into empty slots; returns how many they are, or -1 if one is there twice."""
    found = 0
    for row in range(min(top, rows)):
        if seen[row] != 0:
            begin = row * width
            length = np.int64(_word8(records, begin)) | np.int64(_word8(records, begin + 1)) << 8
            length = min(length, width - LENGTH)
            hash_ = np.int64(sip_at(records, begin + LENGTH, length, key0, key1))
            slot = _slot_of_text(slots, mask, hash_, records, width, rows, records, begin + LENGTH, length)
            if peek(slots, 2 * slot + 1) != 0:
                return -1
            _put(slots, slot, hash_, row)
            found += 1
    return found


@kernel
def shards(workers, chunks, keys, ranks, output):
    """The rank of each key: the upper half of its hash with seed 0, times the ranks, over 2**32."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, output.size), chunk_start(chunk + 1, chunks, output.size)):
            poke(output, i, np.int64((_spread(peek(keys, i), U(0)) >> U(32)) * U(ranks) >> U(32)))
    leave(workers, seen)
