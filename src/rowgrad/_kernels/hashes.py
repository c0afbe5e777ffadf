"""The hashes that TensorFlow makes of strings, bit for bit, and the UTF-8 of columns of text.

FarmHash's Fingerprint64 (which never changes) is what crossed and hashed columns are made of, SipHash-2-4 is the keyed
one, and `_older` is the one of StringToHashBucket. A column is an array of bytes with the begin and the end of each
string, which are bounded after they were read: the caller's memory may change meanwhile.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import chunk_start, enter, leave, share

U = np.uint64
K0, K1, K2 = U(0xC3A5C85C97CB3127), U(0xB492B66FBE98F273), U(0x9AE16A3B2F90404F)
MURMUR, OLDER_SEED = U(0xC6A4A7935BD1E995), U(0xDECAFCAFFE)
SIP = (U(0x736F6D6570736575), U(0x646F72616E646F6D), U(0x6C7967656E657261), U(0x7465646279746573))


def _word(bits: int) -> Any:
    @intrinsic
    def word(typingctx: Any, data: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.gep(context.make_array(data)(context, builder, args[0]).data, [args[1]])
            found = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()), align=1)
            return builder.zext(found, ir.IntType(64)) if bits < 64 else found

        return types.uint64(data, types.intp), codegen

    return word


# So many bits of an array of bytes from a position on, wherever that is, as uint64.
_word8, _word32, _word64 = _word(8), _word(32), _word(64)


@inline
def _rotated(value, right):
    return value >> U(right) | value << U(64 - right)


@inline
def _mixed(value):
    return value ^ value >> U(47)


@inline
def _of_two(one, other, factor):
    a = _mixed((one ^ other) * factor)
    return _mixed((other ^ a) * factor) * factor


@inline
def _up_to_16_words(first, last, factor):
    """What 8 to 16 bytes come down to: two words, made of the first 8 bytes and of the last 8."""
    a = first + K2
    return _rotated(last, 37) * factor + a, (_rotated(a, 25) + last) * factor


@inline
def _up_to_16(data, at, size):
    if size >= 8:
        factor = K2 + U(size) * U(2)
        one, other = _up_to_16_words(_word64(data, at), _word64(data, at + size - 8), factor)
        return _of_two(one, other, factor)
    if size >= 4:
        factor = K2 + U(size) * U(2)
        return _of_two(U(size) + (_word32(data, at) << U(3)), _word32(data, at + size - 4), factor)
    if size > 0:
        y = _word8(data, at) + (_word8(data, at + (size >> 1)) << U(8))
        z = U(size) + (_word8(data, at + size - 1) << U(2))
        return _mixed(y * K2 ^ z * K0) * K2
    return K2


@inline
def _up_to_32(data, at, size):
    factor = K2 + U(size) * U(2)
    a, b = _word64(data, at) * K1, _word64(data, at + 8)
    c, d = _word64(data, at + size - 8) * factor, _word64(data, at + size - 16) * K2
    return _of_two(_rotated(a + b, 43) + _rotated(c, 30) + d, a + _rotated(b + K2, 18) + c, factor)


@inline
def _up_to_64(data, at, size):
    factor = K2 + U(size) * U(2)
    a, b = _word64(data, at) * K2, _word64(data, at + 8)
    c, d = _word64(data, at + size - 8) * factor, _word64(data, at + size - 16) * K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _of_two(y, a + _rotated(b + K2, 18) + c, factor)
    e, f = _word64(data, at + 16) * factor, _word64(data, at + 24)
    g = (y + _word64(data, at + size - 32)) * factor
    h = (z + _word64(data, at + size - 24)) * factor
    return _of_two(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, factor)


@inline
def _weak(data, at, a, b):
    w, x, y, z = _word64(data, at), _word64(data, at + 8), _word64(data, at + 16), _word64(data, at + 24)
    a += w
    b = _rotated(b + a + z, 21)
    c = a
    a += x + y
    return a + z, b + _rotated(a, 44) + c


@inline
def _round(data, at, x, y, z, v0, v1, w0, w1, factor, by):
    x = _rotated(x + y + v0 + _word64(data, at + 8), 37) * factor
    y = _rotated(y + v1 + _word64(data, at + 48), 42) * factor
    x ^= w1 * by
    y += v0 * by + _word64(data, at + 40)
    z = _rotated(z + w0, 33) * factor
    v0, v1 = _weak(data, at, v1 * factor, x + w0)
    w0, w1 = _weak(data, at + 32, z + w1, y + _word64(data, at + 16))
    return z, y, x, v0, v1, w0, w1


@inline
def _longer(data, at, size):
    nothing, end, last = U(0), at + (size - 1) // 64 * 64, at + size - 64
    y = U(81) * K1 + U(113)
    z = _mixed(y * K2 + U(113)) * K2
    x = U(81) * K2 + _word64(data, at)
    v0, v1, w0, w1 = nothing, nothing, nothing, nothing
    while at < end:
        x, y, z, v0, v1, w0, w1 = _round(data, at, x, y, z, v0, v1, w0, w1, K1, U(1))
        at += 64
    factor = K1 + ((z & U(0xFF)) << U(1))
    w0 += U((size - 1) & 63)
    v0 += w0
    w0 += v0
    x, y, z, v0, v1, w0, w1 = _round(data, last, x, y, z, v0, v1, w0, w1, factor, U(9))
    return _of_two(_of_two(v0, w0, factor) + _mixed(y) * K0 + z, _of_two(v1, w1, factor) + x, factor)


@inline
def fingerprint_at(data, at, size):
    """FarmHash's Fingerprint64 of `size` bytes."""
    if size <= 16:
        return _up_to_16(data, at, size)
    if size <= 32:
        return _up_to_32(data, at, size)
    if size <= 64:
        return _up_to_64(data, at, size)
    return _longer(data, at, size)


@inline
def fingerprint_both(one, other):
    """FingerprintCat64: that of two fingerprints, in their order."""
    found = (one ^ MURMUR ^ _mixed(other * MURMUR) * MURMUR) * MURMUR
    return _mixed(_mixed(found) * MURMUR)


@inline
def _left(value, left):
    return _rotated(value, 64 - left)


@inline
def _sip_round(v0, v1, v2, v3):
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = _left(v1, 13) ^ v0, _left(v3, 16) ^ v2
    v0 = _left(v0, 32)
    v2, v0 = v2 + v1, v0 + v3
    v1, v3 = _left(v1, 17) ^ v2, _left(v3, 21) ^ v0
    return v0, v1, _left(v2, 32), v3


@inline
def sip_at(data, at, size, key0, key1):
    """SipHash-2-4 of `size` bytes."""
    v0, v1, v2, v3 = SIP[0] ^ key0, SIP[1] ^ key1, SIP[2] ^ key0, SIP[3] ^ key1
    end = at + size
    for block in range(size // 8 + 1):
        here = at + 8 * block
        if here + 8 <= end:
            word = _word64(data, here)
        else:
            word = U(size) << U(56)
            for byte in range(end - here):
                word |= _word8(data, here + byte) << U(8 * byte)
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= U(0xFF)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@inline
def older_at(data, at, size):
    """TensorFlow's Hash64."""
    found = OLDER_SEED ^ U(size) * MURMUR
    end = at + size
    while at + 8 <= end:
        found = (found ^ _mixed(_word64(data, at) * MURMUR) * MURMUR) * MURMUR
        at += 8
    if at < end:
        for byte in range(end - at):
            found ^= _word8(data, at + byte) << U(8 * byte)
        found *= MURMUR
    return _mixed(_mixed(found) * MURMUR)


@inline
def bounded(begins, ends, i, limit):
    """Where string i begins, and how many bytes it has, within an array of `limit` bytes."""
    at = min(max(peek(begins, i), 0), limit)
    return at, min(max(peek(ends, i), at), limit) - at


@intrinsic
def _high_product(typingctx: Any, one: Any, other: Any) -> Any:
    """The upper 64 bits of a product of 128."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


def divisor(buckets: int) -> Any:
    """What `remainder` gets to know of a number to divide by: the number, a factor, two shifts, and its halves; or a 0.

    A division takes as long as the hash of a short string, so it is made a product (Granlund and Montgomery).
    """
    length = max(buckets - 1, 0).bit_length()
    factor = ((1 << 64) * ((1 << length) - buckets) // buckets + 1) % 2**64 if buckets else 0
    halves = factor & 0xFFFFFFFF, factor >> 32
    return np.array([buckets, factor, min(length, 1), max(length - 1, 0), *halves], np.uint64)


@inline
def remainder(found, by):
    """The rest of `found` when it is divided; `by` is what `divisor` gives. By 0, it stays what it is."""
    if by[0] == U(0):
        return found
    high = _high_product(by[1], found)
    return found - (high + (found - high >> by[2]) >> by[3]) * by[0]


@kernel
def strong_hashes(workers, chunks, data, begins, ends, size, by, key0, key1, output):
    """The keyed hash of each string, or the remainder."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            at, length = bounded(begins, ends, i, data.size)
            poke(output, i, remainder(sip_at(data, at, length, key0, key1), by))
    leave(workers, seen)


@kernel
def older_hashes(workers, chunks, data, begins, ends, size, by, output):
    """TensorFlow's Hash64 of each string, or the remainder."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            at, length = bounded(begins, ends, i, data.size)
            poke(output, i, remainder(older_at(data, at, length), by))
    leave(workers, seen)


@kernel
def trimmed_ends(workers, chunks, data, width, size, ends):
    """Where strings of `width` bytes each end, without the zeros behind them."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            end = (i + 1) * width
            while end > i * width and data[end - 1] == 0:
                end -= 1
            poke(ends, i, end)
    leave(workers, seen)


@inline
def _utf8_size(point):
    return 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4


@kernel
def utf8_sizes(workers, chunks, points, width, size, sizes, wrong):
    """How many bytes each string of `width` code points takes; `wrong` is the first with a surrogate, or -1."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        wrong[chunk] = -1
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            end = (i + 1) * width
            while end > i * width and points[end - 1] == 0:
                end -= 1
            total = np.int64(0)
            for at in range(i * width, end):
                point = points[at]
                total += _utf8_size(point)
                if (0xD800 <= point < 0xE000 or point > 0x10FFFF) and wrong[chunk] < 0:
                    wrong[chunk] = i
            poke(sizes, i, total)
    leave(workers, seen)


@kernel
def utf8_bytes(workers, chunks, points, width, size, ends, data):
    """Write each string as UTF-8; string i has the bytes from ends[i] to ends[i + 1]."""
    seen = enter(workers)
    for chunk in share(workers, 0, chunks):
        for i in range(chunk_start(chunk, chunks, size), chunk_start(chunk + 1, chunks, size)):
            to, stop = peek(ends, i), peek(ends, i + 1)
            for at in range(i * width, (i + 1) * width):
                point = points[at]
                length = _utf8_size(point)
                if to + length > stop:
                    break
                if length == 1:
                    data[to] = point
                else:
                    lead = (0xC0, 0xE0, 0xF0)[length - 2]
                    data[to] = (lead | point >> (6 * (length - 1))) & 0xFF
                    for more in range(1, length):
                        data[to + more] = 0x80 | (point >> (6 * (length - 1 - more))) & 0x3F
                to += length
            for rest in range(to, stop):
                data[rest] = 0
    leave(workers, seen)
