"""Control groups for tests: processes that are given little memory."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from optional import missing

OLD = Path("/sys/fs/cgroup/memory")
NEW = Path("/sys/fs/cgroup")


@contextmanager
def little_memory(limit: int) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A group of at most `limit` bytes, copies of files included, and what puts a new process into it."""
    for root, setting in ((OLD, "memory.limit_in_bytes"), (NEW, "memory.max")):
        group = root / f"rowgrad-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / setting).write_text(str(limit))
        except OSError:  # the memory controller is not on here
            group.rmdir()
            continue
        try:
            yield group, lambda: _join(group)  # noqa: B023
        finally:
            group.rmdir()
        return
    missing("no control group with a limit of memory can be made; that takes root and the memory controller")


def _join(group: Path) -> None:
    handle = os.open(group / "cgroup.procs", os.O_WRONLY)
    os.write(handle, str(os.getpid()).encode())
    os.close(handle)
