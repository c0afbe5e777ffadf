"""Fingerprints of short strings, made many at a time.

The hash of a short string is a chain of multiplications. A batch is therefore hashed in two steps: the size and two
words of each string are put side by side, whatever its length, and then vectors of these are hashed, without branches
that the lengths would make unpredictable. Strings of more than `SHORT` bytes are hashed one by one.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.hashes import (
    K0,
    K2,
    U,
    _mixed,
    _of_two,
    _up_to_16_words,
    _word64,
    bounded,
    fingerprint_at,
)
from rowgrad._kernels.lanes import count, load, spread, store, zeros64
from rowgrad._kernels.raw import array_at, peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share
from rowgrad._kernels.team import room

BATCH, SHORT = 64, 16
LONG = SHORT + 1  # stands for the size of each string that was hashed alone
ROOM = 3 * BATCH  # words
NUMBERS = np.empty(0, np.uint64)
LOW32, LOW8 = U(0xFFFFFFFF), U(0xFF)


@inline
def put(batch, k, data, at, size, is_short):
    """Make a string number k of a batch. If it `is_short`, 8 bytes from `at` on are read even if it has fewer.

    Returns its size, or LONG, if its fingerprint is made already.
    """
    if is_short:
        poke(batch, k, U(size))
        poke(batch, BATCH + k, _word64(data, at))
        poke(batch, 2 * BATCH + k, _word64(data, at + max(size - 8, 0)))
        return size
    poke(batch, k, U(LONG))
    poke(batch, BATCH + k, fingerprint_at(data, at, size))
    return LONG


@intrinsic
def _if_less(typingctx: Any, value: Any, limit: Any, then: Any, otherwise: Any) -> Any:
    """In each lane `then` if the value is less than a limit, else `otherwise`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        is_less = builder.icmp_unsigned("<", args[0], spread(builder, args[1], value.count))
        return builder.select(is_less, args[2], args[3])

    return value(value, types.uint64, value, value), codegen


@inline
def _byte(word, place):
    """The byte of a word at a place; of none, if there is no such place."""
    return word >> (place * U(8) & U(63)) & LOW8


@inline
def _hash_few(batch):
    """Replace strings of less than 4 bytes by their fingerprints."""
    nothing = zeros64(batch)
    for k in range(0, BATCH, count(nothing)):
        size, first = load(nothing, batch, k), load(nothing, batch, BATCH + k)
        y = (first & LOW8) + (_byte(first, size >> U(1)) << U(8))
        z = size + (_byte(first, size - U(1)) << U(2))
        found = _if_less(size, U(1), nothing + K2, _mixed(y * K2 ^ z * K0) * K2)
        store(batch, BATCH + k, _if_less(size, U(4), found, first))
        store(batch, k, _if_less(size, U(4), nothing + U(LONG), size))


@inline
def _short(size, first, last):
    """What `hashes._up_to_16` gives for 4 bytes and more, by the first 8, and the last 8 if there are more."""
    factor = size * U(2) + K2
    one, other = _up_to_16_words(first, last, factor)
    one = _if_less(size, U(8), size + ((first & LOW32) << U(3)), one)
    other = _if_less(size, U(8), first >> ((size - U(4)) * U(8) & U(63)) & LOW32, other)
    return _of_two(one, other, factor)


@inline
def _remainders(found, by):
    """What `hashes.remainder` gives. Vectors have no products of 128 bits: they are made of four."""
    if by[0] == U(0):
        return found
    low, high = found & LOW32, found >> U(32)
    inner = low * by[5]
    middle = (low * by[4] >> U(32)) + (inner & LOW32) + high * by[4]
    product = high * by[5] + (inner >> U(32)) + (middle >> U(32))
    return found - (product + (found - product >> by[2]) >> by[3]) * by[0]


@inline
def finish(batch, strings, least, by, output, start):
    """Write the fingerprints of the strings of a batch, or the remainders, from `start` on; `least` is their size."""
    nothing = zeros64(batch)
    if least < 4:
        _hash_few(batch)
    for k in range(0, strings, count(nothing)):
        size, found = load(nothing, batch, k), load(nothing, batch, BATCH + k)
        if least <= SHORT:
            found = _if_less(size, U(LONG), _short(size, found, load(nothing, batch, 2 * BATCH + k)), found)
        found = _remainders(found, by)
        if k + count(nothing) <= strings:
            store(output, start + k, found)
        else:
            store(batch, k, found)
            for last in range(k, strings):
                poke(output, start + last, peek(batch, last))


@kernel
def fingerprints(workers, chunks, data, begins, ends, size, by, output):
    """The fingerprint of each string, or the remainder, as `by` says."""
    seen = enter(workers)
    batch = array_at(room(ROOM), NUMBERS)
    for chunk in share(workers, 0, chunks):
        start, stop = chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)
        while start < stop:
            strings = min(BATCH, stop - start)
            least = np.int64(LONG)
            for k in range(strings):
                at, length = bounded(begins, ends, start + k, data.size)
                least = min(least, put(batch, k, data, at, length, (length <= SHORT) & (at + 8 <= data.size)))
            finish(batch, strings, least, by, output, start)
            start += strings
    leave(workers, seen)
