"""Where results get their memory: one place that says no before the operating system has to.

Linux promises memory it does not have and ends the process when that memory is touched. A large request is therefore
compared with what is free first.
"""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad.dtypes import Array
from rowgrad.errors import OutOfMemoryError

_GROUP = Path("/sys/fs/cgroup")
LARGE = 1 << 26  # requests below this many bytes are not worth a look at the machine


def allocate(shape: tuple[int, ...], dtype: Any, *, argument: str | None = None, zero: bool = False) -> Array:
    """A new array, or `OutOfMemoryError`, blaming `argument`, if it would not fit.

    Zeroed memory comes from the operating system page by page, so untouched rows of a large result cost nothing.
    """
    dtype = np.dtype(dtype)
    nbytes = prod(shape) * dtype.itemsize
    if nbytes >= LARGE and nbytes > (free := available()):
        raise _out_of_memory(shape, dtype, argument, f"about {_gigabytes(free)} are free")
    try:
        return np.zeros(shape, dtype) if zero else np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:  # NumPy calls a size past 64 bits a ValueError
        raise _out_of_memory(shape, dtype, argument, "the memory is not to be had") from error


def _out_of_memory(shape: tuple[int, ...], dtype: np.dtype[Any], argument: str | None, why: str) -> OutOfMemoryError:
    size = _gigabytes(prod(shape) * dtype.itemsize)
    return OutOfMemoryError(
        f"a result of shape {list(shape)} in {dtype.name} takes {size}, and {why}. "
        "Ask for fewer rows, or use an operator with a compact result.",
        code="out-of-memory",
        argument=argument,
        value=shape,
    )


def _gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:.3g} GB"


def available() -> int:
    """The bytes this process can still get: what the machine has free, within the limit of its control group."""
    free = _machine_free()
    limit = _number(_GROUP / "memory.max")
    used = _number(_GROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used + _cached_files()))
    return free


def _machine_free() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62  # not Linux: the allocation itself tells


def _cached_files() -> int:
    """The bytes of the control group that are copies of files and can be dropped at any time."""
    for line in (_GROUP / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no control group, or the word "max"
        return None
