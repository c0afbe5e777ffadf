"""One array in a file, mapped so that changes stay private to the process until they are written on purpose.

The operating system tracks the pages that were changed, whoever changed them, and is asked when it matters; rows in
these pages are compared with the file to find those that differ. Where the system does not tell
(`/proc/self/pagemap`), a byte per page is kept here, and rows have to be reported with `mark`.
"""

import mmap
import os
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._runtime.arrays import settle
from rowgrad._runtime.dtypes import Array, name_of
from rowgrad.errors import FileError
from rowgrad.tables import _regular as regular

PAGE = mmap.PAGESIZE
ROUND = 1 << 16  # files are this many bytes or a multiple, so that they are whole pages on any machine
SCAN = 1 << 16  # pages that are asked for at a time
COMPARED = 1 << 22  # bytes that are compared with the file at a time
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_PAGEMAP = "/proc/self/pagemap"


def file_size(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> int:
    """The bytes of the file of an array: whole pages, and at least one, since nothing cannot be mapped."""
    return max(1, -(-prod(shape) * dtype.itemsize // ROUND)) * ROUND


def open_array(path: Path, dtype: "np.dtype[Any]", shape: tuple[int, ...], flags: int) -> int:
    """A descriptor of the file of an array; `FileError` if it is missing or not of the right size."""
    try:
        file = regular.open_file(path, flags)
    except FileNotFoundError as error:
        raise regular.missing(path) from error
    size, expected = os.fstat(file).st_size, file_size(shape, dtype)
    if size != expected:
        os.close(file)
        how = "truncated" if size < expected else "too long"
        raise FileError(
            f"{path} is {how}: it has {size} bytes, and an array of shape {list(shape)} in {name_of(dtype)} takes "
            f"{expected}. Copy the whole folder again from its source.",
            code="wrong-size",
            value=size,
        )
    return file


class Mapping:
    """The array of `shape` in the file at `path`; what is written to it reaches the file by `write_rows` only.

    `count` rows of `row_bytes` each are what is written and compared; an array without dimensions is one row.
    """

    def __init__(self, path: Path, dtype: "np.dtype[Any]", shape: tuple[int, ...], *, writable: bool) -> None:
        self.path = path
        self.size = file_size(shape, dtype)
        self.pages = self.size // PAGE
        self.count = shape[0] if shape else 1
        self.row_bytes = prod(shape[1:]) * dtype.itemsize
        self._seen: Array | None = None
        self._stored: mmap.mmap | None = None  # the file as it is, beside the changes
        # Private mappings of files that are only read may be written to as well; a left journal is laid over them.
        self._file = open_array(path, dtype, shape, os.O_RDWR if writable else os.O_RDONLY)
        try:
            self._map = mmap.mmap(
                self._file, self.size, mmap.MAP_PRIVATE | _NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            )
            if writable:
                self._stored = mmap.mmap(self._file, self.size, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            os.close(self._file)
            raise FileError(
                f"{path} cannot be mapped: {self.size} bytes of address space are not available ({error.strerror}). "
                "Raise its limit (`ulimit -v`, `ulimit -d`); memory itself is needed for changes only.",
                code="cannot-map",
                value=self.size,
            ) from error
        self.bytes: Array = np.frombuffer(self._map, np.uint8)
        self._address = self.bytes.ctypes.data
        self.array: Array = self.bytes[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        self.raw = self.array  # for kernels, which never write to what is open for reading
        if writable and not self._is_tracked():
            self._seen = np.zeros(self.pages, np.bool_)

    def close(self) -> None:
        """Give up the file; the array stays readable for whoever holds it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def check_place(self) -> None:
        """Raise `FileError` if the folder has another file in the place of this one."""
        regular.check_place(self._file, self.path)

    def check_size(self) -> None:
        """Raise `FileError` if the file is shorter than the mapping: reading past its end would end the process."""
        size = os.fstat(self._file).st_size if self._file >= 0 else self.size
        if size < self.size:
            raise FileError(
                f"{self.path} was truncated while the table was open: it has {size} bytes, and had {self.size}. "
                "Unflushed changes are lost. Close the table with `close(flush=False)`, and copy the whole folder "
                "again from its source.",
                code="wrong-size",
                value=size,
            )

    def lock_array(self) -> None:
        """Make the array read-only."""
        self.array = self.array.view()
        self.array.flags.writeable = False

    def expect_random(self) -> None:
        """Rows will be read here and there: reading what is around them would be in vain."""
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
            if self._stored is not None:
                self._stored.madvise(mmap.MADV_RANDOM)

    def prefetch(self, rows: Array) -> None:
        """Have the disk read the pages of rows, all at once; a look-up alone would wait for one after another."""
        if not hasattr(os, "posix_fadvise") or not self.row_bytes:
            return
        first, last = rows * self.row_bytes // PAGE, ((rows + 1) * self.row_bytes - 1) // PAGE
        pages = np.unique(np.concatenate([first + i for i in range(int((last - first).max(initial=0)) + 1)]))
        for begin, stop in runs(pages):
            os.posix_fadvise(self._file, begin * PAGE, (stop - begin) * PAGE, os.POSIX_FADV_WILLNEED)

    # The pages that were changed

    def _is_tracked(self) -> bool:
        """Try it: a page that is written to must be told as changed, and no more when it was dropped."""
        if not (hasattr(mmap, "MADV_DONTNEED") and sys.platform == "linux"):
            return False
        self.bytes[0] = self.bytes[0]
        try:
            told = self._ask(0, 1)[0]
            self._map.madvise(mmap.MADV_DONTNEED, 0, PAGE)
            return bool(told and not self._ask(0, 1)[0])
        except OSError:
            return False

    def _ask(self, first: int, count: int) -> Array:
        """Which of `count` pages are private: in memory or swapped out, and not those of the file."""
        book = os.open(_PAGEMAP, os.O_RDONLY)
        try:
            entries = np.frombuffer(os.pread(book, 8 * count, 8 * (self._address // PAGE + first)), np.uint64)
        finally:
            os.close(book)
        if entries.size != count:
            raise OSError(f"{_PAGEMAP} ends early")
        in_use, of_file = entries >> np.uint64(62) != 0, entries & np.uint64(1 << 61) != 0
        private: Array = in_use & ~of_file
        return private

    def changed(self) -> Array:
        """The numbers of the pages that were changed, ascending."""
        if self._seen is not None:
            return np.flatnonzero(self._seen)
        found = [
            np.flatnonzero(self._ask(first, min(SCAN, self.pages - first))) + first
            for first in range(0, self.pages, SCAN)
        ]
        return np.concatenate(found)

    @property
    def needs_marks(self) -> bool:
        """Whether changed rows have to be reported."""
        return self._seen is not None

    def mark(self, rows: Array | None) -> None:
        """Note that `rows` were changed, or any; only where the system does not track them."""
        if self._seen is None:
            return
        if rows is None or self.array.ndim == 0:
            self._seen[:] = True
            return
        first = rows.astype(np.int64) * self.row_bytes
        last = (first + max(self.row_bytes, 1) - 1) // PAGE
        first //= PAGE
        for ahead in range(self._pages_of_row()):
            self._seen[np.minimum(first + ahead, last)] = True

    def most_changed(self, rows: int) -> int:
        """The most pages that a change of that many rows can touch."""
        if self.array.ndim == 0:
            return 1
        return min(self.pages, rows * self._pages_of_row())

    def _pages_of_row(self) -> int:
        if self.row_bytes and PAGE % self.row_bytes == 0:
            return 1
        return max(self.row_bytes - 1, 0) // PAGE + 2

    def changed_rows(self, pages: Array) -> Array:
        """The rows in `pages` (ascending) that differ from the file, ascending."""
        if self._stored is None or not self.row_bytes or not self.count:
            return np.empty(0, np.int64)
        word = next(size for size in (8, 4, 2, 1) if self.row_bytes % size == 0)
        kind = np.dtype(f"u{word}")
        # The kernel reads only; it is compiled for writable arrays, as all kernels are.
        stored = settle(np.frombuffer(self._stored, kind))
        current = self.bytes.view(kind)
        step = COMPARED // PAGE
        output = np.empty(step * (PAGE // self.row_bytes + 2), np.int64)
        found = []
        for first in range(0, pages.size, step):
            some = pages[first : first + step]
            count = kernels.changed_rows.changed_rows(
                current, stored, some, PAGE // word, self.row_bytes // word, self.count * self.row_bytes // word, output
            )
            found.append(output[:count].copy())
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
        return rows if len(found) < 2 else np.unique(rows)  # a row may lie in the pages of two batches

    # To the file and back

    def reserve(self, rows: Array) -> None:
        """Get the disk's room for `rows` now, where the file has holes, so that it cannot be missing later."""
        if os.fstat(self._file).st_blocks * 512 >= self.size or not hasattr(os, "posix_fallocate"):
            return
        first, last = rows * self.row_bytes // ROUND, ((rows + 1) * self.row_bytes - 1) // ROUND
        ends = np.unique(np.concatenate([first, last]))
        blocks = ends if self.row_bytes <= ROUND else np.unique(np.concatenate(
            [np.arange(begin, end + 1) for begin, end in zip(first.tolist(), last.tolist(), strict=True)]
        ))  # fmt: skip
        for begin, stop in runs(blocks):
            os.posix_fallocate(self._file, begin * ROUND, (stop - begin) * ROUND)

    def fill_holes_in_memory(self) -> None:
        """On a disk that is memory itself, get the room for all of the file.

        There, looking at a hole takes room too, and where there is none, the system ends the process.
        """
        if hasattr(os, "posix_fallocate") and _file_system(self._file) in ("tmpfs", "ramfs", "devtmpfs"):
            os.posix_fallocate(self._file, 0, self.size)

    def gather(self, rows: Array) -> Array:
        """A copy of the bytes of `rows`."""
        copy: Array = self.bytes[: self.count * self.row_bytes].reshape(self.count, self.row_bytes)[rows]
        return copy

    def overlay(self, rows: Array, contents: Array) -> None:
        """Put other bytes into `rows`, in private memory."""
        self.bytes[: self.count * self.row_bytes].reshape(self.count, self.row_bytes)[rows] = contents

    def write_rows(self, rows: Array) -> None:
        """Write `rows` to the file; the system brings them to the disk when it likes, or by `sync`."""
        view, size = memoryview(self._map), self.row_bytes
        for first, stop in runs(rows):
            write_at(self._file, view[first * size : stop * size], first * size)

    def sync(self) -> None:
        """Bring the file to the disk."""
        os.fsync(self._file)

    def drop(self, pages: Array) -> None:
        """Give back the memory of `pages`, which are the same as those of the file by now."""
        if self._seen is not None:
            self._seen[pages] = False
            return
        for first, stop in runs(pages):
            self._map.madvise(mmap.MADV_DONTNEED, first * PAGE, (stop - first) * PAGE)

    def drop_overlay(self) -> None:
        """Show the file as it is, without what was laid over it."""
        if not hasattr(mmap, "MADV_DONTNEED") or sys.platform != "linux":
            raise FileError("readers can follow a writer on Linux only. Open the table again.", code="not-supported")
        self._map.madvise(mmap.MADV_DONTNEED)


def _file_system(file: int) -> str:
    """The kind of file system that a file is on, as Linux calls it; "" if it does not tell."""
    device = os.fstat(file).st_dev
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.split(" - ", 1)[1].split()[0] for line in lines if line.split()[2] == wanted]
    return kinds[-1] if kinds else ""


def runs(pages: Array) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges [first, stop)."""
    if pages.size == 0:
        return
    breaks = np.flatnonzero(np.diff(pages) != 1)
    firsts = pages[np.concatenate(([0], breaks + 1))].tolist()
    lasts = pages[np.concatenate((breaks, [pages.size - 1]))].tolist()
    for first, last in zip(firsts, lasts, strict=True):
        yield first, last + 1


def write_at(file: int, data: memoryview, offset: int) -> None:
    """Write all of `data`; the system may take it in parts."""
    while len(data):
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
