"""The journal of pages that rowgrad kept during a flush before it had row logs (version 1): read, never written.

A process may end at any moment. Until the mark is on the disk, the files are those of the old step, and the journal
is thrown away; from then on it holds all of the new step, and is written into the files again when the table opens.
The mark is written only after the rest has reached the disk: so a marked journal that does not match its checksums
was damaged later, which is told, not guessed at.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import FileError
from rowgrad.tables import _header as headers
from rowgrad.tables import _regular as regular
from rowgrad.tables._header import Header
from rowgrad.tables._mapping import open_array, runs, write_at

NAME = "journal.bin"
MAGIC = b"RGJOURN1"
MARK = b"COMPLETE"
BATCH = 1 << 22  # bytes of pages that are copied, summed and written at a time
PAGE_SIZES = tuple(1 << bits for bits in range(12, 17))
_START = struct.Struct("<8sII")  # magic, length and crc32 of the text that follows
_BATCH = struct.Struct("<II")  # number of the file, number of pages; then their numbers, their contents, a crc32
_END = struct.Struct("<8sQII")  # mark, bytes before it, crc32 of the crc32s of all batches, crc32 of these three


class Batch(NamedTuple):
    """Some pages of one file."""

    file: int
    pages: Array
    contents: Array


def is_complete(folder: Path) -> bool:
    """Whether there is a journal that was marked; one that was not changed nothing yet."""
    try:
        with _open(folder) as file:
            return _mark(file) is not None
    except FileNotFoundError:
        return False


def replay(folder: Path) -> None:
    """Write all pages of a complete journal into the files, then its header, and remove it; may be done again."""
    header = check(folder)
    parts = list(header.parts().values())
    handles: list[int] = []
    try:
        for part in parts:
            handles.append(open_array(folder / part.file, part.dtype, part.shape, os.O_RDWR))

        def put(number: int, offset: int, data: memoryview) -> None:
            write_at(handles[number], data, offset)

        read(folder, put)
        for handle in handles:
            os.fsync(handle)
    finally:
        for handle in handles:
            os.close(handle)
    headers.write(folder, header.as_json())
    remove(folder)


def check(folder: Path) -> Header:
    """The header in a complete journal, after all of the journal was compared with its checksums."""
    return read(folder, lambda number, offset, data: None)


def read(folder: Path, put: Callable[[int, int, memoryview], None]) -> Header:
    """Call `put(number of the file, offset, data)` for all runs of pages; tells the header."""
    path = folder / NAME
    with _open(folder) as file:
        mark = _mark(file)
        if mark is None:
            raise _damaged(path, "it was never completed")
        end, expected = mark
        file.seek(0)
        magic, length, checksum = _START.unpack(file.read(_START.size))
        text = file.read(min(length, headers.LARGEST))
        if magic != MAGIC or zlib.crc32(text) != checksum:
            raise _damaged(path, "its beginning does not match its checksum")
        try:
            fields = json.loads(text)
            page, header = int(fields["page"]), Header.parse(fields["header"], str(path))
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, str(error)) from error
        if page not in PAGE_SIZES:
            raise _damaged(path, f"it has pages of {page} bytes")
        sizes = [part.size // page for part in header.parts().values()]
        checksums = 0
        for batch, stored in _batches(file, end, page, path):
            checksums = zlib.crc32(stored, checksums)
            if batch.file >= len(sizes) or batch.pages[0] < 0 or batch.pages[-1] >= sizes[batch.file]:
                raise _damaged(path, "it names a page that no file has")
            done = 0
            for first, stop in runs(batch.pages):
                put(batch.file, first * page, batch.contents[done * page : (done + stop - first) * page].data)
                done += stop - first
        if checksums != expected:
            raise _damaged(path, "its parts do not match the checksum of them all")
        return header


def remove(folder: Path) -> None:
    """Remove the journal, if there is one. Should it come back after a power failure, replaying it changes nothing."""
    (folder / NAME).unlink(missing_ok=True)


def _open(folder: Path) -> BinaryIO:
    return os.fdopen(regular.open_file(folder / NAME, os.O_RDONLY), "rb")


def _batches(file: BinaryIO, end: int, page: int, path: Path) -> Iterator[tuple[Batch, bytes]]:
    while file.tell() < end:
        lead = file.read(_BATCH.size)
        number, count = _BATCH.unpack(lead) if len(lead) == _BATCH.size else (0, 0)
        if not 0 < count <= BATCH // PAGE_SIZES[0]:
            raise _damaged(path, "a part of it has no length")
        numbers = file.read(8 * count)
        contents, stored = file.read(page * count), file.read(4)
        if len(stored) < 4 or struct.pack("<I", zlib.crc32(contents, zlib.crc32(numbers, zlib.crc32(lead)))) != stored:
            raise _damaged(path, "a part of it does not match its checksum")
        pages = np.frombuffer(numbers, "<i8").astype(np.int64)
        if (np.diff(pages) <= 0).any():
            raise _damaged(path, "its pages do not ascend")
        yield Batch(number, pages, np.frombuffer(contents, np.uint8)), stored


def _mark(file: BinaryIO) -> tuple[int, int] | None:
    """Where the batches end and the checksum of theirs, if the mark is whole."""
    size = file.seek(0, os.SEEK_END)
    if size < _START.size + _END.size:
        return None
    file.seek(size - _END.size)
    end = file.read(_END.size)
    mark, before, checksums, checksum = _END.unpack(end)
    if mark != MARK or zlib.crc32(end[:-4]) != checksum or before != size - _END.size:
        return None
    return before, checksums


def _damaged(path: Path, what: str) -> FileError:
    return FileError(
        f"{path} is damaged: {what}. The table may be between two steps, and cannot be opened. Use a copy of the "
        "whole folder from before.",
        code="bad-journal",
    )
