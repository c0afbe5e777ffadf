"""One writer at a time: a lock that the operating system gives up when its process ends, however that happens.

Locks of this kind are not handed on to forked children, and are not in the way of the process that has them; so which
tables are open in this process is remembered here.
"""

import os
from pathlib import Path

from rowgrad.errors import FileError

NAME = "lock"
_open_here: dict[tuple[int, int], int] = {}  # file → the process that has locked it; after a fork, not this one


class Lock:
    """The right to change the table in `folder`; `FileError` if someone else has it."""

    def __init__(self, folder: Path) -> None:
        import fcntl  # not on every system

        # Closing any handle of a locked file would give up the lock: look first whether it is ours.
        path = folder / NAME
        if path.exists() and _open_here.get(_identity(os.stat(path))) == os.getpid():
            raise _taken(folder, "by this process")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise _taken(folder, f"by process {owner}" if owner.isdigit() else "elsewhere") from error
        self._key = _identity(os.fstat(self._file))
        _open_here[self._key] = os.getpid()
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)
        except OSError:  # a full disk: then nobody can be named, which is all
            pass

    def release(self) -> None:
        """Let others change the table."""
        if self._file >= 0:
            if _open_here.get(self._key) == os.getpid():
                del _open_here[self._key]
            os.close(self._file)
            self._file = -1


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _taken(folder: Path, where: str) -> FileError:
    return FileError(
        f'{folder} is already open for writing {where}. Close it there first, or open it here with mode="r".',
        code="table-locked",
        argument="path",
    )
