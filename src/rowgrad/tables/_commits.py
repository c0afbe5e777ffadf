"""What the writer of a table and its readers share: how far commits are, and which commit each reader shows.

The file `commits.bin` is shared memory: the last commit that is complete, and the last whose rows were written into the
files. Rows are written there under an exclusive lock of this file, and readers look at log and files under a shared
one. Each reader has a file of its own, locked as long as it lives, with the commit that it shows.
"""

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from rowgrad.errors import FileError
from rowgrad.tables import _regular as regular

NAME = "commits.bin"
READER = "reader."
SIZE = 4096
_MAGIC = int.from_bytes(b"RGCOMMIT", "little")
_KIND, COMPLETE, APPLIED, APPLYING = range(4)
_LOOK_AGAIN = 0.01  # seconds between two attempts to get a lock


class Commits:
    """The shared numbers of the table or set in `folder`."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self.path = folder / NAME
        self._file = -1
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        self._file = regular.open_file(self.path, flags)
        try:
            if writable and os.fstat(self._file).st_size != SIZE:
                os.ftruncate(self._file, SIZE)
            if os.fstat(self._file).st_size != SIZE:
                raise FileError(f"{self.path} is truncated. Open the table for writing, which writes it again.",
                                code="wrong-size")  # fmt: skip
            access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
            self._numbers = np.frombuffer(mmap.mmap(self._file, SIZE, mmap.MAP_SHARED, access), np.int64)
        except BaseException:
            self.close()
            raise
        if writable and self._numbers[_KIND] != _MAGIC:
            self._numbers[:] = 0
            self._numbers[_KIND] = _MAGIC

    @property
    def complete(self) -> int:
        """The last commit that is on the disk."""
        return int(self._numbers[COMPLETE])

    @property
    def applied(self) -> int:
        """The last commit whose rows are in the files, or are being written there."""
        return int(self._numbers[APPLIED])

    @property
    def is_torn(self) -> bool:
        """Whether a writer ended while it wrote rows into the files; asked with the lock, else it may be doing so."""
        return bool(self._numbers[APPLYING])

    def set_complete(self, sequence: int) -> None:
        """Tell that a commit is on the disk."""
        self._numbers[COMPLETE] = sequence

    @contextmanager
    def applying(self, sequence: int) -> Iterator[None]:
        """Within this, the rows of commits up to `sequence` are written into the files.

        What fails here leaves the mark that the files are between two steps, until it is done again.
        """
        self._numbers[APPLYING] = 1
        self._numbers[APPLIED] = sequence
        yield
        self._numbers[APPLYING] = 0

    @contextmanager
    def locked(self, *, exclusive: bool, patience: float) -> Iterator[bool]:
        """Whether the lock was had within `patience` seconds; it is given up at the end."""
        import fcntl

        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        deadline = time.monotonic() + patience
        # A descriptor of its own, since several threads may ask.
        file = regular.open_file(self.path, os.O_RDONLY)
        try:
            held = False
            while not held:
                try:
                    fcntl.flock(file, kind | fcntl.LOCK_NB)
                    held = True
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(_LOOK_AGAIN)
            yield held
        finally:
            os.close(file)

    def is_in_place(self) -> bool:
        """Whether the folder still has this file, and not another one under its name."""
        try:
            return os.path.samestat(os.fstat(self._file), os.lstat(self.path))
        except OSError:
            return False

    def close(self) -> None:
        """Give up the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Reader:
    """A reader's word to the writer: the commit that it shows, in a file that is locked as long as it lives."""

    def __init__(self, folder: Path) -> None:
        import fcntl

        self.path = folder / f"{READER}{os.getpid()}.{os.urandom(4).hex()}"
        self._file = regular.open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.show(0)
        except BaseException:
            self.close()
            raise

    def show(self, sequence: int) -> None:
        """Tell which commit is shown."""
        os.pwrite(self._file, sequence.to_bytes(8, "little"), 0)

    def close(self) -> None:
        """The reader is gone."""
        if self._file >= 0:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._file)
            self._file = -1


def oldest_shown(folder: Path) -> int | None:
    """The oldest commit that a living reader shows; None if there is no reader. Files of dead ones are removed."""
    import fcntl

    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(READER)]
    oldest: int | None = None
    for name in names:
        try:
            file = regular.open_file(folder / name, os.O_RDWR)
        except (OSError, FileError):  # it has just gone, or is none of ours
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(OSError):
                (folder / name).unlink()
        except OSError:
            told = os.pread(file, 8, 0)
            if len(told) == 8:  # else it is just being made, and waits for the lock of `commits.bin`
                shown = int.from_bytes(told, "little")
                oldest = shown if oldest is None else min(oldest, shown)
        finally:
            os.close(file)
    return oldest
