"""A tensor bundle, which TensorFlow's checkpoints and SavedModels keep variables in: an index and data files.

The data files are memory-mapped. A tensor is compared with its checksum when it is first used; one that was saved in
slices is put together from them, or read row by row.
"""

import mmap
import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rowgrad._runtime import dtypes, memory
from rowgrad._runtime.checksums import crc32c, masked
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files.regular import open_regular
from rowgrad.errors import FileError
from rowgrad.tensorflow._protobuf import Damage, Message, decoded, varint
from rowgrad.tensorflow._sstable import Extent, items, slice_key

MOST_INDEX = 1 << 30  # bytes; the largest known are a few megabytes

# The numbers of tensorflow/core/framework/types.proto.
_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz", 29: "int4",
    30: "uint4",
}  # fmt: skip


def numpy_type(name: str) -> "np.dtype[Any] | None":
    """The NumPy type of values that are stored one after the other; None for strings and what only TensorFlow has."""
    if name in dtypes.NUMPY:
        return dtypes.NUMPY[name]
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else None


class Entry(NamedTuple):
    """What the index says of a tensor, or of a slice of one."""

    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    slices: tuple[tuple[Extent, ...], ...]

    @classmethod
    def parse(cls, data: bytes) -> "Entry":
        """Of a BundleEntryProto."""
        message = Message(data)
        shape = message.message(2)
        sizes = tuple(each.number(1) for each in shape.messages(2))
        if shape.number(3) or any(size < 0 for size in sizes):
            raise Damage("a tensor has an unknown shape")
        code = message.number(1)
        slices = tuple(
            tuple((extent.number(1), extent.number(2) if extent.has(2) else None) for extent in each.messages(1))
            for each in message.messages(7)
        )
        numbers = message.number(3), message.number(4), message.number(5)
        if min(numbers) < 0:
            raise Damage("a tensor has a negative offset")
        return cls(_NAMES.get(code, f"type {code}"), sizes, *numbers, message.fixed32(6), slices)


class Bundle:
    """The tensors of one checkpoint by key; `prefix` is the path of the index without its ending."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self._index = prefix.with_name(f"{prefix.name}.index")
        self._maps: dict[int, memoryview] = {}
        self._whole: set[tuple[int, int]] = set()  # shards and offsets of what was compared with its checksum
        self._joined: dict[str, list[tuple[tuple[slice, ...], Entry]]] = {}
        stored = self._guarded(self._index, lambda: dict(items(_content(self._index))))
        self.entries, self._slices = self._guarded(self._index, lambda: self._parse(stored))

    def _parse(self, stored: dict[bytes, bytes]) -> tuple[dict[str, Entry], dict[bytes, Entry]]:
        if b"" not in stored:
            raise Damage("it has no header")
        header = Message(stored.pop(b""))
        self._shards = header.number(1)
        if header.number(2):
            raise Damage("it was written on a big-endian machine, which is not supported")
        if header.message(3).number(2) > 1:
            raise Damage("it needs a newer TensorFlow than this reader supports")
        entries, slices = {}, {}
        for key, value in stored.items():
            entry = Entry.parse(value)
            if not entry.slices and not 0 <= entry.shard < self._shards:
                raise Damage(f"a tensor is in data file {entry.shard}, and there are {self._shards}")
            if key[:1] == b"\0":
                slices[key] = entry
            else:
                entries[decoded(key)] = entry
        return entries, slices

    @staticmethod
    def _guarded(path: Path, read: "Callable[[], Any]") -> Any:
        try:
            return read()
        except Damage as damage:
            raise damaged(f"{path}: {damage}.") from None
        except OSError as error:
            raise FileError(f"{path} cannot be read ({error.strerror}).", code="no-such-file") from error

    def array(self, key: str) -> Array:
        """A tensor: memory-mapped where it is stored in one piece, and read-only."""
        entry = self.entries[key]
        if entry.dtype == "string":
            strings: Array = self._guarded_data(entry, key, lambda: self._strings(entry))
            return strings
        dtype = _known(entry, key)
        if not entry.slices:
            return self._stored(entry, key, dtype)
        whole = memory.allocate(entry.shape, dtype, argument=key)
        for where, part in self._parts(key):
            whole[where] = self._stored(part, key, dtype)
        whole.flags.writeable = False
        return whole

    def rows(self, key: str, first: int, last: int) -> Array:
        """The rows of a range; of slices, only those that have some of them are looked at."""
        entry = self.entries[key]
        if not entry.slices or entry.dtype == "string":
            return self.array(key)[first:last]
        dtype = _known(entry, key)
        found = memory.allocate((last - first, *entry.shape[1:]), dtype, argument=key)
        for where, part in self._parts(key):
            begin, end = max(where[0].start, first), min(where[0].stop, last)
            if begin < end:
                inner = slice(begin - where[0].start, end - where[0].start)
                found[(slice(begin - first, end - first), *where[1:])] = self._stored(part, key, dtype)[inner]
        found.flags.writeable = False
        return found

    def _parts(self, key: str) -> list[tuple[tuple[slice, ...], Entry]]:
        """Where each slice of a tensor is, and what is stored of it; together they are all of it, once."""
        if key in self._joined:
            return self._joined[key]
        entry = self.entries[key]
        found = []
        for extents in entry.slices:
            if not extents or len(extents) != len(entry.shape):
                raise damaged(f"{self._index}: a slice of {key!r} has {len(extents)} dimensions.")
            part = self._slices.get(slice_key(key, extents))
            where = tuple(
                slice(start, size if length is None else start + length)
                for (start, length), size in zip(extents, entry.shape, strict=True)
            )
            shape = tuple(each.stop - each.start for each in where)
            inside = all(0 <= each.start <= each.stop <= size for each, size in zip(where, entry.shape, strict=True))
            if part is None or not inside or part.shape != shape or part.dtype != entry.dtype or part.slices:
                raise damaged(f"{self._index}: a slice of {key!r} is missing, or not inside it.")
            found.append((where, part))
        covered = sum(prod(part.shape) for _, part in found)
        filled = sorted((each for each in found if prod(each[1].shape)), key=lambda each: each[0][0].start)
        if covered != prod(entry.shape) or any(
            all(one.start < other.stop and other.start < one.stop for one, other in zip(where, following, strict=True))
            for number, (where, _) in enumerate(filled)
            for following, _ in filled[number + 1 :]
        ):
            raise damaged(f"{self._index}: the slices of {key!r} overlap, or are not all of it.")
        self._joined[key] = found
        return found

    def _stored(self, entry: Entry, key: str, dtype: "np.dtype[Any]") -> Array:
        if entry.size != prod(entry.shape) * dtype.itemsize:
            raise damaged(f"{self._index}: {key!r} has {entry.size} bytes, which do not fit its shape.")
        data = self._guarded_data(entry, key, lambda: self._checked(entry))
        array = np.frombuffer(data, np.uint8).view(dtype) if dtype.itemsize > 1 else np.frombuffer(data, dtype)
        return array.reshape(entry.shape)

    def _checked(self, entry: Entry) -> memoryview:
        data = self._bytes(entry)
        if (entry.shard, entry.offset) not in self._whole:
            if masked(crc32c(data)) != entry.checksum:
                raise Damage("its checksum is wrong")
            self._whole.add((entry.shard, entry.offset))
        return data

    def _strings(self, entry: Entry) -> Array:
        """Lengths, their checksum, the strings; the checksum of all takes lengths as numbers of four or eight bytes."""
        data, count = self._bytes(entry), prod(entry.shape)
        if count > len(data):
            raise Damage("it is too short for so many strings")
        at, sizes, numbers = 0, [], bytearray()
        for _ in range(count):
            size, at = varint(data, at)
            sizes.append(size)
            numbers += size.to_bytes(4 if size < 1 << 32 else 8, "little")
        crc = crc32c(numbers)
        stored, at = bytes(data[at : at + 4]), at + 4
        if masked(crc) != int.from_bytes(stored, "little") or at + sum(sizes) != len(data):
            raise Damage("the lengths of its strings are wrong")
        if masked(crc32c(data[at:], crc32c(stored, crc))) != entry.checksum:
            raise Damage("its checksum is wrong")
        found = np.empty(count, object)
        for position, size in enumerate(sizes):
            found[position] = bytes(data[at : at + size])
            at += size
        found = found.reshape(entry.shape)
        found.flags.writeable = False
        return found

    def _bytes(self, entry: Entry) -> memoryview:
        """Where a tensor is stored. The files are mapped when they are first needed, and stay so."""
        if entry.shard not in self._maps:
            with open_regular(self._shard(entry.shard)) as file:
                size = os.fstat(file.fileno()).st_size
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            self._maps[entry.shard] = memoryview(mapped)
        data = self._maps[entry.shard]
        if entry.offset + entry.size > len(data):
            raise Damage(f"the file has {len(data)} bytes and must have {entry.offset + entry.size}: it is truncated")
        return data[entry.offset : entry.offset + entry.size]

    def _shard(self, number: int) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self._shards:05d}")

    def _guarded_data(self, entry: Entry, key: str, read: "Callable[[], Any]") -> Any:
        try:
            return read()
        except Damage as damage:
            raise damaged(f"{self._shard(entry.shard)}: {key!r} is damaged: {damage}.") from None
        except OSError as error:
            raise FileError(
                f"{self._shard(entry.shard)} cannot be read ({error.strerror}).",
                "a checkpoint is an .index file and all its .data files; copy them together.",
                code="no-such-file",
            ) from error


def damaged(message: str) -> FileError:
    """The error for a file that is not what its checksums say it was."""
    return FileError(message, "copy the checkpoint again from where it was written.", code="damaged-checkpoint")


def _known(entry: Entry, key: str) -> "np.dtype[Any]":
    dtype = numpy_type(entry.dtype)
    if dtype is None:
        raise FileError(f"{key!r} is of {entry.dtype}, which only TensorFlow can read.", code="wrong-dtype")
    return dtype


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_INDEX:
            raise Damage("it is larger than any index")
        return file.read()
