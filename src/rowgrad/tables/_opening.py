"""Opening the folder of a table: the flush that was cut off is finished or undone first, then the files are mapped."""

import os
import time
from math import prod
from pathlib import Path
from typing import NamedTuple

from rowgrad._runtime import limits
from rowgrad.errors import FileError
from rowgrad.tables import _header as headers
from rowgrad.tables import _journal as journal
from rowgrad.tables._header import Header
from rowgrad.tables._lock import Lock
from rowgrad.tables._mapping import Mapping

PATIENCE = 60.0  # seconds that a reader waits for a writer that is writing a step into the files


class Opened(NamedTuple):
    """The files of a table in use; `lock` is None for readers, `recovered` tells what became of a left journal."""

    header: Header
    parts: dict[str, Mapping]
    lock: Lock | None
    recovered: str | None

    def close(self) -> None:
        """Give up the files and the lock."""
        for part in self.parts.values():
            part.close()
        if self.lock is not None:
            self.lock.release()


def to_write(folder: Path) -> Opened:
    """Open for the one who may change it."""
    lock = Lock(folder)
    try:
        recovered = settle_journal(folder)
        header = headers.read(folder)
        return Opened(header, _map(folder, header, writable=True), lock, recovered)
    except BaseException:
        lock.release()
        raise


def to_read(folder: Path) -> Opened:
    """Open for one of any number of readers, whether someone writes or not."""
    deadline = time.monotonic() + PATIENCE
    recovered = None
    while journal.is_complete(folder):
        try:
            lock = Lock(folder)
        except PermissionError:
            return _overlaid(folder)
        except FileError as error:
            if error.code == "cannot-lock":
                return _overlaid(folder)
            if error.code != "table-locked" or time.monotonic() > deadline:
                raise
            # Its writer is at work: wait until the files are whole.
            time.sleep(0.02)
            continue
        try:
            recovered = settle_journal(folder)
        except PermissionError:
            return _overlaid(folder)
        finally:
            lock.release()
    header = headers.read(folder)
    parts = _map(folder, header, writable=False)
    for part in parts.values():
        part.lock_array()
    return Opened(header, parts, None, recovered)


def _overlaid(folder: Path) -> Opened:
    """The journal is complete, and the files must not be changed: lay its pages over them, in private memory."""
    header = journal.check(folder)
    parts = _map(folder, header, writable=False)
    mapped = list(parts.values())

    def put(number: int, offset: int, data: memoryview) -> None:
        mapped[number].bytes[offset : offset + len(data)] = data

    journal.read(folder, put)
    for part in mapped:
        part.lock_array()
    return Opened(header, parts, None, "replayed")


def _map(folder: Path, header: Header, *, writable: bool) -> dict[str, Mapping]:
    parts: dict[str, Mapping] = {}
    try:
        for name, part in header.parts().items():
            parts[name] = Mapping(folder / part.file, part.dtype, part.shape, writable=writable)
            if writable:
                parts[name].fill_holes_in_memory()
    except BaseException:
        for mapping in parts.values():
            mapping.close()
        raise
    if sum(prod(part.shape) * part.dtype.itemsize for part in header.parts().values()) > limits.available():
        for mapping in parts.values():
            mapping.expect_random()
    return parts


def settle_journal(folder: Path) -> str | None:
    """Finish the flush that a journal was written for, or undo it; tells which."""
    if not os.path.lexists(folder / journal.NAME):
        return None
    if not journal.is_complete(folder):
        journal.remove(folder)
        return "discarded"
    if journal.check(folder).id != headers.read(folder).id:
        raise FileError(
            f"{folder / journal.NAME} is the journal of another table. Remove it, if it was copied here by hand.",
            code="bad-journal",
        )
    journal.replay(folder)
    return "replayed"
