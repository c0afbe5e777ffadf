"""Opening files that others name: regular files only, since a named pipe would keep whoever opens it waiting for ever.

Symbolic links are followed; tables on disk, which are written to, have stricter rules of their own.
"""

import os
import stat
from typing import BinaryIO

from rowgrad.errors import FileError


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The file at `path`, to be read; `FileError` if it is no regular file."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileError(
            f"{os.fspath(path)} is a pipe or a device, and must be a regular file. Copy the data to one.",
            code="not-a-regular-file",
            argument="path",
        )
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
