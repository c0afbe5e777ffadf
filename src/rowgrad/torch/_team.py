"""PyTorch's own threads, for kernels that a layer calls.

PyTorch's OpenMP threads stay awake between its operators, on the cores that other threads would need; so kernels that
are called between them are run by that team (docs/decisions/threads.md). Where other processes use the cores, the team
takes long to come together: then this thread works alone for a while. A forked child has no team.
"""

import ctypes
import os
import re
from functools import cache
from pathlib import Path

import torch

from rowgrad._runtime.threads import get_num_threads

GRAIN = 1 << 17  # bytes of work for which a second thread pays
LEAST_ALONE, MOST_ALONE = 32, 4096  # calls that are not shared after the team was late

_alone = 0  # calls that will not be shared
_next_alone = LEAST_ALONE
_forked = False


def team(work: int) -> tuple[int, int]:
    """The address of what runs a kernel on the team, and the number of threads; (0, 1) if one thread is best.

    `work` is about how many bytes the call moves.
    """
    global _alone
    if work < GRAIN:
        return 0, 1
    threads = min(torch.get_num_threads(), get_num_threads())
    if threads == 1 or _forked:
        return 0, 1
    if _alone:
        _alone -= 1
        return 0, 1
    address = _run_parallel()
    return (address, threads) if address else (0, 1)


def was_late() -> None:
    """The team took long to come together: leave it alone for a while, longer each time that it happens again."""
    global _alone, _next_alone
    _alone, _next_alone = _next_alone, min(2 * _next_alone, MOST_ALONE)


def was_in_time() -> None:
    """The team worked well."""
    global _next_alone
    if _next_alone > LEAST_ALONE:
        _next_alone -= 1


@cache
def _run_parallel() -> int:
    """The address of GOMP_parallel in the OpenMP library that PyTorch uses, or 0 if there is none."""
    for path in _libraries():
        try:
            function = ctypes.CDLL(path).GOMP_parallel
        except (OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def _libraries() -> list[str]:
    """Where OpenMP libraries are: those that are loaded, else those that came with PyTorch."""
    name = re.compile(r"/\S*lib(?:g|i|)omp[^/\s]*\.(?:so|dylib)\S*")
    try:
        loaded = sorted(set(name.findall(Path("/proc/self/maps").read_text())))
    except OSError:  # only Linux has it
        loaded = []
    return loaded or [str(path) for path in Path(torch.__file__).parent.glob("lib/lib*omp*")]


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
