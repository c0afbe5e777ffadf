"""The row log: what each commit changes, row by row, appended and checksummed before any file of a table changes.

A record holds the new headers and the new bytes of every changed row. It is brought to the disk first and marked as
complete after that. A process may end at any moment: a record without its mark is discarded, one with its mark is
written into the files again, which may be done any number of times. A marked record that does not match its checksums
was damaged later, which is an error.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import FileError
from rowgrad.tables import _regular as regular
from rowgrad.tables._mapping import Mapping as MappedArray

PREFIX = "log."
BATCH = 1 << 22  # bytes of rows that are copied, summed and written at a time
_FILE = struct.Struct("<8s32sQI")  # magic, id of the table or set, number of the log; crc32 of these
_START = struct.Struct("<8sQQII")  # magic, number of the commit, bytes up to the mark, length of the text; crc32
_BATCH = struct.Struct("<IIII")  # number of the array, rows, bytes of a row number, bytes of a row
_END = struct.Struct("<8sQQII")  # mark, number of the commit, bytes before the mark, crc32 of all crc32s; crc32
_MAGIC, _RECORD, _MARK = b"RGROWLG2", b"RGRECORD", b"COMPLETE"
_LONGEST = 1 << 26  # bytes of the text of a record
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class Record(NamedTuple):
    """A complete record: the commit it is, and where it lies."""

    path: Path
    sequence: int
    offset: int
    size: int  # up to the mark


class Found(NamedTuple):
    """The complete records of one log, and whether one that was not completed follows them."""

    records: list[Record]
    has_rest: bool


class Log:
    """A new log in `folder`, to be appended to."""

    def __init__(self, folder: Path, number: int, identity: str) -> None:
        self.path = folder / f"{PREFIX}{number}"
        self.number = number
        self._file = regular.open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self.size = 0
        try:
            lead = struct.pack("<8s32sQ", _MAGIC, identity.encode(), number)
            self._put(lead + struct.pack("<I", zlib.crc32(lead)))
        except BaseException:
            self.close()
            self.path.unlink()
            raise

    def append(self, sequence: int, text: Mapping[str, Any], changed: Sequence[tuple[MappedArray, Array]]) -> None:
        """Write a record of the rows that changed in each array; it is on the disk, and complete, when this returns.

        If it cannot be written, nothing is left of it.
        """
        start = self.size
        try:
            end, checksums = self._append(sequence, json.dumps(text).encode(), changed)
            _sync(self._file)
            mark = struct.pack("<8sQQI", _MARK, sequence, end, checksums)
            self._put(mark + struct.pack("<I", zlib.crc32(mark)))
            _sync(self._file)
        except BaseException:
            self.size = start
            os.ftruncate(self._file, start)
            raise

    def _append(self, sequence: int, text: bytes, changed: Sequence[tuple[MappedArray, Array]]) -> tuple[int, int]:
        plans = [(number, part, rows) for number, (part, rows) in enumerate(changed) if rows.size]
        size = _START.size + len(text)
        for _, part, rows in plans:
            batches = -(-rows.size // _step(part))
            size += batches * (_BATCH.size + 4) + rows.size * (_id_bytes(part) + part.row_bytes)
        lead = struct.pack("<8sQQI", _RECORD, sequence, size, len(text))
        checksum = zlib.crc32(text, zlib.crc32(lead))
        end = self.size + size
        self._put(lead + struct.pack("<I", checksum) + text)
        checksums = zlib.crc32(struct.pack("<I", checksum))
        for number, part, rows in plans:
            for first in range(0, rows.size, _step(part)):
                some = rows[first : first + _step(part)].astype(f"<u{_id_bytes(part)}")
                head = _BATCH.pack(number, some.size, _id_bytes(part), part.row_bytes) + some.tobytes()
                contents = part.gather(some).reshape(-1)
                sum_of = struct.pack("<I", zlib.crc32(contents.data, zlib.crc32(head)))
                self._put(head)
                self._put(contents.data)
                self._put(sum_of)
                checksums = zlib.crc32(sum_of, checksums)
        return end, checksums

    def _put(self, data: "bytes | memoryview") -> None:
        view = memoryview(data)
        while len(view):
            written = os.pwrite(self._file, view, self.size)
            view, self.size = view[written:], self.size + written

    def close(self) -> None:
        """Give up the file, which stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _step(part: MappedArray) -> int:
    return max(1, BATCH // part.row_bytes)


def _id_bytes(part: MappedArray) -> int:
    return 4 if part.count <= 2**32 else 8


def paths(folder: Path) -> list[Path]:
    """The logs in `folder`, oldest first."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            number = entry.name.removeprefix(PREFIX)
            if entry.name.startswith(PREFIX) and number.isdigit():
                found.append((int(number), Path(entry.path)))
    return [path for _, path in sorted(found)]


def number_of(path: Path) -> int:
    """The number of a log."""
    return int(path.name.removeprefix(PREFIX))


def scan(path: Path, identity: str) -> Found:
    """The records of a log. Their rows are compared with the checksums when they are read."""
    records: list[Record] = []
    with _open(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        lead = file.read(_FILE.size)
        if len(lead) < _FILE.size:
            return Found([], True)
        magic, owner, _, checksum = _FILE.unpack(lead)
        if magic != _MAGIC or zlib.crc32(lead[:-4]) != checksum:
            raise damaged(path, "its beginning does not match its checksum")
        if owner.decode("ascii", "replace") != identity:
            raise FileError(
                f"{path} is the log of another table. Remove it, if it was copied here by hand.", code="bad-journal"
            )
        at = _FILE.size
        while at < size:
            found = _record_at(file, path, at)
            if found is None:
                # Marks are the last thing written: behind one, everything before it has been on the disk.
                if _mark_at(file, size - _END.size) is not None:
                    raise damaged(path, "a record before its last one does not match its checksum")
                return Found(records, True)
            records.append(found)
            at += found.size + _END.size
    return Found(records, False)


def _record_at(file: BinaryIO, path: Path, at: int) -> Record | None:
    file.seek(at)
    lead = file.read(_START.size)
    if len(lead) < _START.size:
        return None
    magic, sequence, size, length, checksum = _START.unpack(lead)
    if magic != _RECORD or length > _LONGEST or size < _START.size + length:
        return None
    if zlib.crc32(file.read(length), zlib.crc32(lead[:-4])) != checksum:
        return None
    mark = _mark_at(file, at + size)
    if mark is None or mark[0] != sequence:
        return None
    return Record(path, sequence, at, size)


def _mark_at(file: BinaryIO, at: int) -> tuple[int, int] | None:
    """The commit and the checksum of checksums in the mark at a position, if there is a whole one."""
    file.seek(max(at, 0))
    end = file.read(_END.size)
    if len(end) < _END.size:
        return None
    mark, sequence, before, checksums, checksum = _END.unpack(end)
    if mark != _MARK or before != at or zlib.crc32(end[:-4]) != checksum:
        return None
    return sequence, checksums


def text_of(record: Record) -> Any:
    """What the record says beside its rows: headers, and the caller's record."""
    with _open(record.path) as file:
        file.seek(record.offset)
        lead = file.read(_START.size)
        text = file.read(min(_START.unpack(lead)[3], _LONGEST))
    if zlib.crc32(text, zlib.crc32(lead[:-4])) != _START.unpack(lead)[4]:
        raise damaged(record.path, "a record does not match its checksum")
    try:
        return json.loads(text)
    except ValueError as error:
        raise damaged(record.path, str(error)) from error


def read_rows(record: Record, shapes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Array, Array]]:
    """(number of the array, rows, contents) of all batches; `shapes` has the rows and the bytes of a row of each array.

    Rows are checked, so that they can be written wherever they say.
    """
    path = record.path
    with _open(path) as file:
        file.seek(record.offset)
        lead = file.read(_START.size)
        length, checksum = _START.unpack(lead)[3:]
        file.seek(length, os.SEEK_CUR)
        checksums = zlib.crc32(struct.pack("<I", checksum))
        end = record.offset + record.size
        while file.tell() < end:
            head = file.read(_BATCH.size)
            number, count, id_bytes, row_bytes = _BATCH.unpack(head) if len(head) == _BATCH.size else (0, 0, 0, 0)
            if number >= len(shapes) or id_bytes not in (4, 8) or row_bytes != shapes[number][1] or not count:
                raise damaged(path, "a part of it does not fit the table")
            if count * (id_bytes + row_bytes) > end - file.tell():
                raise damaged(path, "a part of it is too long")
            ids, contents = file.read(id_bytes * count), file.read(row_bytes * count)
            stored = file.read(4)
            if struct.pack("<I", zlib.crc32(contents, zlib.crc32(ids, zlib.crc32(head)))) != stored:
                raise damaged(path, "a part of it does not match its checksum")
            checksums = zlib.crc32(stored, checksums)
            rows = np.frombuffer(ids, f"<u{id_bytes}").astype(np.int64)
            if (np.diff(rows) <= 0).any() or rows[0] < 0 or rows[-1] >= shapes[number][0]:
                raise damaged(path, "it names a row that the table does not have, or one twice")
            yield number, rows, np.frombuffer(contents, np.uint8).reshape(count, row_bytes)
        mark = _mark_at(file, end)
        if mark is None or mark[1] != checksums:
            raise damaged(path, "its parts do not match the checksum of them all")


def _open(path: Path) -> BinaryIO:
    return os.fdopen(regular.open_file(path, os.O_RDONLY), "rb")


def damaged(path: Path, what: str) -> FileError:
    """The error for a log whose contents cannot be trusted."""
    return FileError(
        f"{path} is damaged: {what}. The table may be between two steps, and cannot be opened. Use a copy of the "
        "whole folder from before.",
        code="bad-journal",
    )
