"""How much memory this process may have: what the machine has free, within the control groups it is in.

Groups of both versions are looked at, from the process's own up to the root, since any of them may have the limit.
"""

from collections.abc import Iterator
from pathlib import Path

ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
OLD_ROOT = Path("/sys/fs/cgroup/memory")
# The files of a group: its limit, what it uses, and the lines that tell how much of that are copies of files.
NEW = ("memory.max", "memory.current", ("inactive_file", "active_file"))
OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))


def available() -> int:
    """The bytes this process can still get; copies of files count as free, since they can be dropped at any time."""
    return max(0, min([_machine_free(), *_of_groups()]))


def _machine_free() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62  # not Linux: the allocation itself tells


def _of_groups() -> Iterator[int]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            for root in ROOTS:
                yield from _up(root, group, NEW)
        elif "memory" in controllers.split(","):
            yield from _up(OLD_ROOT, group, OLD)


def _up(root: Path, group: str, names: tuple[str, str, tuple[str, str]]) -> Iterator[int]:
    """What is free in a group and in each that it is part of; in a container, the path may not exist here."""
    folder = root / group.lstrip("/")
    for place in (folder, *folder.parents):
        free = _free(place, names)
        if free is not None:
            yield free
        if place == root:
            break


def _free(place: Path, names: tuple[str, str, tuple[str, str]]) -> int | None:
    try:
        limit, used = (int((place / name).read_text()) for name in names[:2])
        stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or the word "max"
        return None
    return limit - used + sum(int(stat.get(name, 0)) for name in names[2])


def private_bytes() -> int | None:
    """The bytes of this process that no file holds, in memory or swapped out; None if the system does not tell."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "VmSwap"):
            found[name] = int(rest.split()[0]) * 1024
    return sum(found.values()) if len(found) == 2 else None
