"""Copies of a table or a set at one commit, taken while commits go on.

Files are copied as they are, whatever is written to them meanwhile; every commit since the last time they were whole on
the disk is in the logs, which are kept as long. Written over the copies, they make them whole at the last commit.
"""

import errno
import os
import sys
import threading
from pathlib import Path

from rowgrad.errors import FileError
from rowgrad.tables import _header as headers
from rowgrad.tables import _recovery as recovery
from rowgrad.tables import _regular as regular
from rowgrad.tables._creating import remove, unfinished, whole_or_nothing
from rowgrad.tables._home import LOCKED, SET, TABLES, Home
from rowgrad.tables._mapping import write_at
from rowgrad.tables._recovery import State
from rowgrad.tables._store import Store

BLOCK = 1 << 22  # bytes that are copied at a time
_FICLONE = 0x40049409  # share the blocks of another file; Linux
_NO_REFLINK = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.ETXTBSY)


def take(store: Store, guard: "threading.RLock", path: Path) -> None:
    """Make the copy at `path`. `guard` keeps commits out, and is held for a moment at a time only."""
    if os.path.lexists(path):
        raise FileError(f"{path} already exists. Choose another path for the snapshot.", code="exists", argument="path")
    new = unfinished(path)
    copy = Home(new, store.home.identity, {name: _place(new, store.home, name) for name in store.home.tables},
                store.home.is_set)  # fmt: skip
    with whole_or_nothing(path, lambda: remove_copy(copy)):
        with guard:
            held = store.retained()
            held.__enter__()
        try:
            _copy(store, guard, copy)
        finally:
            with guard:
                held.__exit__(None, None, None)
        new.rename(path)
        headers.sync_folder(path.parent)


def _place(new: Path, home: Home, name: str) -> Path:
    return new / TABLES / name if home.is_set else new


def _copy(store: Store, guard: "threading.RLock", copy: Home) -> None:
    for folder in copy.tables.values() or [copy.folder]:
        folder.mkdir(parents=True)
    for name, parts in store.parts.items():
        for part in parts.values():
            _copy_file(part.path, copy.tables[name] / part.path.name)
    with guard:
        records = store.records()
        state = State(dict(store.headers), store.record)
    if records:
        recovery.replay(records, state, copy.tables, None)
    if copy.is_set:
        (copy.folder / LOCKED).touch()
    copy.write(state.headers, state.record)


def _copy_file(source: Path, target: Path) -> None:
    """Share the blocks of `source`, or copy those that it has; holes stay holes. It is on the disk then."""
    read = regular.open_file(source, os.O_RDONLY)
    try:
        write = regular.open_file(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            if not _shares_blocks(read, write):
                _copy_blocks(read, write)
            os.fsync(write)
        finally:
            os.close(write)
    finally:
        os.close(read)


def _shares_blocks(read: int, write: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(write, _FICLONE, read)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


def _copy_blocks(read: int, write: int) -> None:
    size = os.fstat(read).st_size
    os.ftruncate(write, size)
    at = 0
    while at < size:
        at, end = _next_data(read, at, size)
        while at < end:
            block = os.pread(read, min(BLOCK, end - at), at)
            if not block:
                raise OSError(errno.EIO, "the file was truncated while it was copied")
            write_at(write, memoryview(block), at)
            at += len(block)


def _next_data(file: int, at: int, size: int) -> tuple[int, int]:
    """The next range of a file that is no hole, from `at` on."""
    if not hasattr(os, "SEEK_DATA"):
        return at, size
    try:
        first = os.lseek(file, at, os.SEEK_DATA)
        return first, min(os.lseek(file, first, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole is left
            return size, size
        return at, size


def remove_copy(copy: Home) -> None:
    """Remove what was made of a copy."""
    for folder in copy.tables.values():
        remove(folder)
    if copy.is_set and copy.folder.is_dir():
        for name in (SET, LOCKED):
            (copy.folder / name).unlink(missing_ok=True)
        for folder in (copy.folder / TABLES, copy.folder):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
