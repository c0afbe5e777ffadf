"""PyTorch's own threads, for kernels in a process that uses PyTorch.

PyTorch's OpenMP threads stay awake between its operators, on the cores that other threads would need; so kernels are
run by that team where there is one (docs/decisions/threads.md). Where other processes use the cores, the team takes
long to come together: it is left alone for a while then. A forked child has no team.
"""

import ctypes
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

GRAIN = 1 << 17  # bytes of work for which a second thread pays
LEAST_ALONE, MOST_ALONE = 32, 4096  # calls that the team is not asked for after it was late

_alone = 0  # calls that will not be shared
_next_alone = LEAST_ALONE
_forked = False
_kept: list[Any] = []  # what kernels have the address of


def team(work: int, most: int) -> tuple[int, int]:
    """The address of the team's functions, and its number of threads, at most `most`; (0, 1) without a team.

    `work` is about how many bytes the call moves.
    """
    global _alone
    if work < GRAIN or most == 1 or _forked:
        return 0, 1
    torch = sys.modules.get("torch")
    if torch is None:
        return 0, 1
    try:
        threads = min(torch.get_num_threads(), most)
    except AttributeError:  # another thread is importing it
        return 0, 1
    if threads == 1:
        return 0, 1
    if _alone:
        _alone -= 1
        return 0, 1
    address = _functions(torch.__file__)
    return (address, threads) if address else (0, 1)


def is_left_alone() -> bool:
    """Whether the next call of `team` gets none, because it was late."""
    return _alone > 0


def note(was_late: bool) -> None:
    """Record whether the threads of the team started in time.

    If not, it is left alone for a while, longer each time that it happens again.
    """
    global _alone, _next_alone
    if was_late:
        _alone, _next_alone = _next_alone, min(2 * _next_alone, MOST_ALONE)
    elif _next_alone > LEAST_ALONE:
        _next_alone -= 1


def ask_again() -> None:
    """Let the next call of `team` ask for it, however late it was before."""
    global _alone
    _alone = 0


@cache
def _functions(torch_file: str) -> int:
    """Where the addresses of GOMP_parallel and omp_get_thread_num of PyTorch's OpenMP library stand; 0 without one."""
    for path in _libraries(torch_file):
        try:
            library = ctypes.CDLL(path)
            functions = library.GOMP_parallel, library.omp_get_thread_num
        except (OSError, AttributeError):
            continue
        addresses = (ctypes.c_void_p * 2)(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
        _kept.append(addresses)
        return ctypes.addressof(addresses)
    return 0


def _libraries(torch_file: str) -> list[str]:
    """Where OpenMP libraries are: those that are loaded, PyTorch's own first, else those that came with it."""
    own = Path(torch_file).parent
    name = re.compile(r"/\S*lib(?:g|i|)omp[^/\s]*\.(?:so|dylib)\S*")
    try:
        loaded = set(name.findall(Path("/proc/self/maps").read_text()))
    except OSError:  # only Linux has it
        loaded = set()
    return sorted(loaded, key=lambda path: (own not in Path(path).parents, path)) or [
        str(path) for path in own.glob("lib/lib*omp*")
    ]


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
