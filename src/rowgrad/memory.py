"""Where results get their memory.

Two things are done here once for all operators. A large request is compared with what is free first: Linux promises
memory it does not have, and ends the process when that memory is touched. And the memory of large results is taken
back when they are dropped, for the next ones: pages that are new to a process cost more than what is written to them.
"""

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from rowgrad import kernels
from rowgrad.dtypes import Array
from rowgrad.errors import InvalidArgumentError, OutOfMemoryError
from rowgrad.kernels.kinds import SMALL, SMALL_WORK
from rowgrad.limits import available
from rowgrad.threads import Crew

POOLED = 1 << 20  # the memory of results from this size on is taken back
LINE = 64  # bytes of a cache line; large results begin with one, so that their rows lie in as few as can be
PAST = 1 << 22  # results from this size on are written past the caches, which would read their lines first
LEAST_SCRATCH = 1 << 22
MOST_SCRATCH = 1 << 28
LARGE = 1 << 26  # requests below this many bytes are not worth a look at the machine

_thread = threading.local()
_free: list[Array] = []
_pool_lock = threading.RLock()


def allocate(shape: tuple[int, ...], dtype: Any, *, argument: str | None = None, zero: bool = False) -> Array:
    """A new array, or `OutOfMemoryError`, blaming `argument`, if it would not fit.

    New memory that has to be zero comes so from the operating system, page by page, as it is touched.
    """
    array, is_zero = _allocate(shape, np.dtype(dtype), argument, zero)
    if zero and not is_zero:
        clear(array)
    return array


def _allocate(shape: tuple[int, ...], dtype: "np.dtype[Any]", argument: str | None, zero: bool) -> tuple[Array, bool]:
    """The same, cleared only where that costs nothing; tells whether it is."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes >= POOLED and (block := _take(nbytes)) is not None:
        return _leased(block, shape, dtype), False
    if nbytes >= LARGE and nbytes > (free := _available_after_clearing(nbytes)):
        raise _out_of_memory(shape, dtype, argument, f"about {_gigabytes(free)} are free")
    try:
        if nbytes < POOLED:
            return np.zeros(shape, dtype) if zero else np.empty(shape, dtype), zero
        # A little room, for the next one may be a little larger; what must be zero is always of the same size.
        block = np.zeros(nbytes + LINE, np.uint8) if zero else np.empty(nbytes + nbytes // 8 + LINE, np.uint8)
        return _leased(block[-block.ctypes.data % LINE :], shape, dtype), zero
    except (MemoryError, ValueError) as error:  # NumPy calls a size past 64 bits a ValueError
        raise _out_of_memory(shape, dtype, argument, "the memory is not to be had") from error


def check_room(nbytes: int, argument: str) -> None:
    """There must be room for a copy of `argument` of that many bytes."""
    if nbytes >= LARGE and nbytes > (free := _available_after_clearing(nbytes)):
        raise OutOfMemoryError(
            f"{argument} has to be copied, which takes {_gigabytes(nbytes)}, and about {_gigabytes(free)} are free. "
            "Pass a contiguous array of a type that is listed.",
            code="out-of-memory",
            argument=argument,
            value=nbytes,
        )


def place(
    out: Array | None, shape: tuple[int, ...], dtype: Any, inputs: tuple[Array, ...], *, argument: str, zero: bool
) -> Array:
    """Where a result goes: a new array, or `out`, if it is one that the result fits into."""
    array, is_zero = place_uncleared(out, shape, dtype, inputs, argument=argument, zero=zero)
    if zero and not is_zero:
        clear(array)
    return array


def place_uncleared(
    out: Array | None, shape: tuple[int, ...], dtype: Any, inputs: tuple[Array, ...], *, argument: str, zero: bool
) -> tuple[Array, bool]:
    """The same for whoever clears it; tells whether it is zero as it comes, which new memory is if `zero` is asked."""
    if out is None:
        return _allocate(shape, np.dtype(dtype), argument, zero)
    if out.shape != shape or out.dtype != dtype:
        raise InvalidArgumentError(
            f"out has shape {list(out.shape)} and type {out.dtype.name}; the result has shape {list(shape)} and type "
            f"{np.dtype(dtype).name}. Pass an array like that, or none.",
            code="bad-out",
            argument="out",
            value=out.shape,
        )
    if any(np.may_share_memory(out, array) for array in inputs):
        raise InvalidArgumentError(
            "out shares memory with an input, which would change while it is read. Pass another array.",
            code="bad-out",
            argument="out",
        )
    return out, False


def goes_past(array: Array, row_bytes: int) -> bool:
    """Whether to write `array`, in rows of `row_bytes`, past the caches."""
    return array.nbytes >= PAST and array.ctypes.data % LINE == 0 and row_bytes % 32 == 0


def clear(array: Array) -> None:
    """Set all bytes of a contiguous array to 0."""
    Crew(array.nbytes).run(kernels.clear.clear, array.reshape(-1).view(np.uint8))


class _Lease:
    """The owner of a block of memory while a result lives in it; goes last, and then gives the block back."""

    def __init__(self, block: Array) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self, free: list[Array] = _free, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # This may run anywhere, in the middle of `_take` too: so no lock, only an append, which is atomic; and when the
        # interpreter ends and modules are empty already, there is nobody to keep the block for.
        if is_finalizing():
            return
        if sum(block.nbytes for block in tuple(free)) + self._block.nbytes <= pool_limit():
            free.append(self._block)


def _leased(block: Array, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
    array: Array = np.asarray(_Lease(block))
    return array[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _take(nbytes: int) -> Array | None:
    """The smallest free block that holds `nbytes` and is not far too large."""
    with _pool_lock:
        fitting = [block for block in tuple(_free) if nbytes <= block.nbytes <= 2 * nbytes]
        if not fitting:
            return None
        best = min(fitting, key=lambda block: block.nbytes)
        for position, block in enumerate(tuple(_free)):
            if block is best:
                del _free[position]
                return best
    return None


def clear_pool() -> int:
    """Give back to the operating system what is kept for later results; tells how many bytes these were."""
    with _pool_lock:
        nbytes = sum(block.nbytes for block in _free)
        _free.clear()
    return nbytes


@cache
def pool_limit() -> int:
    """The most bytes that are kept: an eighth of the machine's memory, or `ROWGRAD_POOL_BYTES`."""
    text = os.environ.get("ROWGRAD_POOL_BYTES", "")
    if text.isdigit():
        return int(text)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8
    except (ValueError, OSError, AttributeError):  # not known on every system
        return 1 << 28


def small_work(sums: "np.dtype[Any]") -> tuple[Array, Array]:
    """Room for the kernel of small calls, and for its factors; this thread's own, made once."""
    try:
        return _thread.small[sums]  # type: ignore[no-any-return]
    except (AttributeError, KeyError):
        if not hasattr(_thread, "small"):
            _thread.small = {}
        _thread.small[sums] = np.empty(SMALL_WORK, np.int64), np.empty(SMALL, sums)
        return _thread.small[sums]  # type: ignore[no-any-return]


def scratch(size: int, dtype: Any) -> Array:
    """Memory for the duration of a call, kept by this thread for its next call; it is not zeroed.

    New pages cost more than what is written to them, so small calls would pay more for scratch than for work. A thread
    has one such array at a time.
    """
    nbytes = size * np.dtype(dtype).itemsize
    if nbytes > MOST_SCRATCH:
        return allocate((size,), dtype)
    kept: Array | None = getattr(_thread, "scratch", None)
    if kept is None or kept.nbytes < nbytes:
        # From 4 MB on, NumPy asks for huge pages.
        kept = _thread.scratch = allocate((max(nbytes + nbytes // 4, LEAST_SCRATCH),), np.uint8)
    return kept[:nbytes].view(dtype)


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


def _available_after_clearing(nbytes: int) -> int:
    """What is free; if that is less than `nbytes`, what is kept for later results is given up first."""
    free = available()
    return free if nbytes <= free or not clear_pool() else available()


def _after_fork() -> None:
    """A thread of the parent may have held the lock, and is not there to release it."""
    global _pool_lock
    _pool_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
