"""One writer at a time: a file of the table or set is locked with `flock`, which ends with the process.

The lock belongs to the open file, not to the process: copying the folder in the same process does not release it, and
a second table in the same process is refused like any other. The file `lock` only names the process that holds it;
deleting that file lets nobody in.
"""

import errno
import os
import weakref
from pathlib import Path

from rowgrad.errors import FileError
from rowgrad.tables import _regular as regular
from rowgrad.tables._home import Home

NAME = "lock"
_HELD_BY_OTHERS = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class Lock:
    """The right to change the table or the set of `home`; `FileError` if someone else has it."""

    def __init__(self, home: Home) -> None:
        import fcntl  # not on every system

        folder, path = home.folder, home.locked  # never replaced while the table lives, as the header is
        try:
            # NFS gives exclusive locks only to descriptors that are open for writing.
            self._file = regular.open_file(path, os.O_RDWR)
        except FileNotFoundError as error:
            raise regular.missing(path) from error
        _held.add(self)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _HELD_BY_OTHERS:
                    raise _taken(folder) from error
                raise _without_locks(folder, error) from error
            regular.check_place(self._file, path)  # `Table.create` may have put a new table there
            _name_owner(folder)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others change the table."""
        if self._file >= 0:
            os.close(self._file)  # not LOCK_UN, which a forked child would do for its parent
            self._file = -1


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _release_in_child() -> None:
    """A child has the open files of its parent: closed here, the locks end with the parent."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def _name_owner(folder: Path) -> None:
    """Write down who holds the lock; into a new file, since the one that is there may have other names elsewhere."""
    path = folder / NAME
    try:
        os.close(regular.open_file(path, os.O_RDONLY))
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError:
        return
    try:
        file = regular.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except OSError:  # a full disk: then nobody can be named, which is all
        return
    try:
        os.write(file, str(os.getpid()).encode())
    except OSError:
        pass
    finally:
        os.close(file)


def _owner(folder: Path) -> str:
    try:
        file = regular.open_file(folder / NAME, os.O_RDONLY)
    except (OSError, FileError):
        return "elsewhere"
    try:
        owner = os.read(file, 32).decode("ascii", "replace").strip()
    finally:
        os.close(file)
    if not owner.isdigit():
        return "elsewhere"
    return "by this process" if int(owner) == os.getpid() else f"by process {owner}"


def _taken(folder: Path) -> FileError:
    return FileError(
        f'{folder} is already open for writing {_owner(folder)}. Close it there first, or open it here with mode="r".',
        code="table-locked",
        argument="path",
    )


def _without_locks(folder: Path, error: OSError) -> FileError:
    return FileError(
        f"{folder} cannot be locked ({error.strerror}), and two writers would damage it. Copy the folder to a file "
        'system that has locks (`flock`), or open it with mode="r".',
        code="cannot-lock",
        argument="path",
    )
