"""One process compiles a kernel while others that need the same one wait for its file.

Ranks of one job, workers of a server and test processes start together and need the same kernels. The lock is a byte of
a file beside the cache folder, one byte for each kernel. The system releases it when its process ends. A wait has an
end: a process that is stopped, or a file system without locks, only costs a second compilation.
"""

import os
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # this system has no such locks: each process compiles for itself
    fcntl = None  # type: ignore[assignment]

PATIENCE = 20.0  # seconds; compiling a kernel takes two on an idle machine
POLL = 0.01  # seconds


class CompileLock:
    """The lock of the kernel that is kept in `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        # A digest is part of the name; two kernels with one byte would only wait for each other.
        self._byte = int(path.name.split(".")[-2][:8], 16)

    def acquire(self) -> bool:
        """Take the lock, and tell so; if another process has it, wait until that is done with the kernel."""
        if fcntl is None or not self._open():
            return True
        if self._try():
            return True
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not self._path.exists() and not self._try():
            time.sleep(POLL)
        self.release()
        return False

    def release(self) -> None:
        """Let others go on; closing the file unlocks it."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _open(self) -> bool:
        folder = self._path.parent
        try:
            self._file = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        return True

    def _try(self) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # no locks on this file system
            return True
        return True
