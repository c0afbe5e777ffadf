"""The index of a checkpoint: a sorted table of keys and values in LevelDB's format, and the keys of slices in it."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rowgrad._runtime.checksums import crc32c, masked
from rowgrad.tensorflow._protobuf import Damage, varint

MAGIC = 0xDB4775248B80FB57
FOOTER = 48  # bytes: the places of two blocks, padding, and the magic number
TRAILER = 5  # bytes after a block: how it is compressed, and its checksum

Extent = tuple[int, int | None]  # the first index and the length of a slice in one dimension; None is all of it


class _Place(NamedTuple):
    offset: int
    size: int


def items(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in order; each block is checked against its checksum."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
        raise Damage("it does not end as an index of TensorFlow does: it is truncated, or of another format")
    footer = data[-FOOTER:-8]
    _, at = _place(footer, 0)  # of a block of statistics, which TensorFlow leaves empty
    index, _ = _place(footer, at)
    last = None
    for _, handle in _pairs(_block(data, index)):
        place, _ = _place(handle, 0)
        for key, value in _pairs(_block(data, place)):
            if last is not None and key <= last:
                raise Damage("its keys are not in order")
            last = key
            yield key, value


def _place(data: bytes, at: int) -> tuple[_Place, int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return _Place(offset, size), at


def _block(data: bytes, place: _Place) -> bytes:
    end = place.offset + place.size
    if end + TRAILER > len(data) - FOOTER:
        raise Damage("a block reaches beyond its end")
    body, kind, stored = data[place.offset : end], data[end], data[end + 1 : end + TRAILER]
    if masked(crc32c(data[place.offset : end + 1])) != int.from_bytes(stored, "little"):
        raise Damage(f"the checksum of the block at byte {place.offset} is wrong")
    if kind:
        raise Damage(
            f"the block at byte {place.offset} is compressed (kind {kind}), which bundles of TensorFlow are not"
        )
    return body


def _pairs(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block; a key is stored without what it shares with the one before it."""
    if len(body) < 4:
        raise Damage("a block is truncated")
    end = len(body) - 4 - 4 * struct.unpack("<I", body[-4:])[0]
    if end < 0:
        raise Damage("a block is truncated")
    at, key = 0, b""
    while at < end:
        shared, at = varint(body, at)
        own, at = varint(body, at)
        size, at = varint(body, at)
        if shared > len(key) or own + size > end - at:
            raise Damage("an entry reaches beyond its block")
        key = key[:shared] + body[at : at + own]
        yield key, body[at + own : at + own + size]
        at += own + size


# The key of a slice: TensorFlow's ordered code of a 0, the name, the rank, and the extents.


def slice_key(name: str, extents: tuple[Extent, ...]) -> bytes:
    """Under which key a slice of the variable `name` is stored."""
    key = _unsigned(0) + name.encode().replace(b"\0", b"\0\xff") + b"\0\1" + _unsigned(len(extents))
    for start, length in extents:
        key += _signed(start) + _signed(-1 if length is None else length)
    return key


def _unsigned(value: int) -> bytes:
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(body)]) + body


def _signed(value: int) -> bytes:
    """Big-endian, in as few bytes as it needs with a header: a 1 for each byte, then a 0, inverted if negative."""
    magnitude = value if value >= 0 else ~value
    length = magnitude.bit_length() // 7 + 1  # 7 bits a byte: the header takes one for each
    header = ((1 << length) - 1) << (16 - length)
    raw = bytearray((value & (1 << 80) - 1).to_bytes(10, "big")[10 - length :])
    raw[0] ^= header >> 8
    if length > 1:
        raw[1] ^= header & 255
    return bytes(raw)
