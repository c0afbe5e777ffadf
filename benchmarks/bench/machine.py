"""The machine that figures belong to: what it is, and whether others kept it busy meanwhile."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rowgrad

CPUS = Path("/sys/devices/system/cpu")


def facts() -> dict[str, Any]:
    """The machine and the versions that do our part."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(_memory() / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {"rowgrad": rowgrad.__version__, "numpy": version("numpy"), "numba": version("numba")},
    }


@contextmanager
def cores_for(threads: int) -> Iterator[None]:
    """Keep this process to one core a thread: whoever counts cores to find how many threads to start counts these."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _apart(sorted(allowed))[:threads])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class Watch:
    """How much of the cores' time others took since this was made; figures from a busy machine are not worth much."""

    def __init__(self) -> None:
        self._began = self._seconds()

    def share_of_others(self) -> float | None:
        """From 0 to 1, or nothing where the system does not tell."""
        now = self._seconds()
        if now is None or self._began is None:
            return None
        total, busy, own = (end - begin for end, begin in zip(now, self._began, strict=True))
        return round(max(busy - own, 0.0) / total, 3) if total > 0 else 0.0

    @staticmethod
    def _seconds() -> tuple[float, float, float] | None:
        """Of all cores: seconds passed, seconds busy, and busy for this process and those it ran."""
        try:
            numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return None
        unit = os.sysconf("SC_CLK_TCK")
        waiting = numbers[3] + numbers[4]
        return sum(numbers) / unit, (sum(numbers) - waiting) / unit, sum(os.times()[:4])


def _apart(cores: list[int]) -> list[int]:
    """`cores`, those first that share no hardware with one before."""
    first: list[int] = []
    second: list[int] = []
    seen = set()
    for core in cores:
        try:
            siblings = (CPUS / f"cpu{core}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(core)
        (second if siblings in seen else first).append(core)
        seen.add(siblings)
    return first + second


def _cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 0
