"""Opening the files of a table: regular files only, so that nothing is written elsewhere and nothing waits.

A table may come from someone else. A symbolic link in it would lead writes out of the folder, and a named pipe would
keep whoever opens it waiting for ever.
"""

import os
import stat
from pathlib import Path

from rowgrad.errors import FileError

_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither, and no tables


def open_file(path: Path, flags: int) -> int:
    """A descriptor of the regular file at `path`, as `os.open` gives it; `FileError` if it is anything else."""
    try:
        file = os.open(path, flags | _SAFELY, 0o666)
    except OSError:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise _irregular(path, os.lstat(path).st_mode) from None
        raise
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        raise _irregular(path, mode)
    return file


def check_place(file: int, path: Path) -> None:
    """Raise `FileError` if `path` names another file by now than the one that is open."""
    try:
        if os.path.samestat(os.fstat(file), os.lstat(path)):
            return
    except FileNotFoundError:
        pass
    raise FileError(
        f"{path} was replaced or removed while the table was open. The new files are not touched. "
        "Copy what is still needed from `array`, close this table with `close(flush=False)`, and open it again.",
        code="file-replaced",
    )


def missing(path: Path) -> FileError:
    """The error for a file that a table cannot do without."""
    return FileError(f"{path} is missing. Copy the whole folder again from its source.", code="file-missing")


def _irregular(path: Path, mode: int) -> FileError:
    kinds = {
        stat.S_ISLNK: "a symbolic link",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISDIR: "a folder",
        stat.S_ISSOCK: "a socket",
    }
    kind = next((name for test, name in kinds.items() if test(mode)), "a device")
    return FileError(
        f"{path} is {kind}, and the files of a table must be regular files. Remove it, or copy the whole folder again, "
        "from its source.",
        code="not-a-regular-file",
        argument="path",
    )
