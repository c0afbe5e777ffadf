"""Where results and scratch get their memory.

Three things are done here once for all operators. A large request is compared with what is free first: Linux promises
memory it does not have, and ends the process when that memory is touched. The memory of large results is taken back
when they are dropped, for the next ones: pages that are new to a process cost more than what is written to them. And
scratch is lent to one call at a time: a signal handler or a finaliser may call rowgrad in the middle of a call, so
what is free is only ever taken and given back by single, atomic operations on a list or a dict, without a lock.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import SMALL, SMALL_WORK
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.limits import available
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfMemoryError

POOLED = 1 << 20  # the memory of results from this size on is taken back
PAGE = 4096  # bytes of a page
LINE = 64  # bytes of a cache line; large results begin with one, so that their rows lie in as few as can be
NONTEMPORAL = (
    1 << 22
)  # results from this size on are written by non-temporal stores, which do not read their lines first
LEAST_SCRATCH = 1 << 22
SMALL_SCRATCH = 1 << 16
MOST_SCRATCH = 1 << 28
LARGE = 1 << 26  # requests below this many bytes are not worth a look at the machine

_free: dict[int, Array] = {}  # by id, so that a block is taken by one `pop`, which only one caller gets it from
_free_scratch: "list[tuple[Array, dict[str, Any]]]" = []
_free_work: "dict[np.dtype[Any], list[tuple[Array, Array]]]" = {}
_free_bytes: list[tuple[Array, int]] = []
_free_zeros: list[tuple[Array, int]] = []
MOST_FREE_SCRATCH = 8  # blocks; more calls at the same time are rare


def allocate(shape: int | tuple[int, ...], dtype: Any, *, argument: str | None = None, zero: bool = False) -> Array:
    """A new array, or `OutOfMemoryError`, blaming `argument`, if it would not fit.

    New memory that has to be zero comes so from the operating system, page by page, as it is touched.
    """
    dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
    if 0 < prod(shape) * dtype.itemsize < POOLED:  # NumPy refuses some shapes without elements too
        return np.zeros(shape, dtype) if zero else np.empty(shape, dtype)
    array, is_zero = _allocate(shape, dtype, argument, zero)
    if zero and not is_zero:
        clear(array)
    return array


def _allocate(shape: tuple[int, ...], dtype: "np.dtype[Any]", argument: str | None, zero: bool) -> tuple[Array, bool]:
    """The same, cleared only where that costs nothing; tells whether it is."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes >= POOLED and (block := _take(nbytes)) is not None:
        return _leased(block, shape, dtype), False
    check_fits(shape, dtype, argument)
    try:
        if nbytes < POOLED:
            return np.zeros(shape, dtype) if zero else np.empty(shape, dtype), zero
        # A little room, for the next one may be a little larger; what must be zero is always of the same size.
        block = np.zeros(nbytes + LINE, np.uint8) if zero else np.empty(nbytes + nbytes // 8 + LINE, np.uint8)
        return _leased(block[-block.ctypes.data % LINE :], shape, dtype), zero
    except (MemoryError, ValueError) as error:  # NumPy calls a size past 64 bits a ValueError
        raise _out_of_memory(shape, dtype, argument, "the system does not give the memory") from error


def check_fits(shape: tuple[int, ...], dtype: "np.dtype[Any]", argument: str | None) -> None:
    """There must be room for a result of that shape; `argument` is blamed."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes >= LARGE and nbytes > (free := _available_after_clearing(nbytes)):
        raise _out_of_memory(shape, dtype, argument, f"about {_gigabytes(free)} are free")


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


def place(out: Array | None, shape: tuple[int, ...], dtype: Any, *, argument: str, zero: bool) -> Array:
    """Where a result goes: a new array, or `out`, if it is one that the result fits into.

    That `out` shares no memory with an input is seen to before, for all operators alike (see `check_apart`).
    """
    if out is None:
        return allocate(shape, dtype, argument=argument, zero=zero)
    array, _ = place_uncleared(out, shape, dtype, argument=argument, zero=zero)
    if zero:
        clear(array)
    return array


def place_uncleared(
    out: Array | None, shape: tuple[int, ...], dtype: Any, *, argument: str, zero: bool
) -> tuple[Array, bool]:
    """The same, not cleared; tells whether it is zero already, as new memory is if `zero` is asked."""
    if out is None:
        return _allocate(shape, np.dtype(dtype), argument, zero)
    if out.shape != shape or out.dtype != dtype:
        raise InvalidArgumentError(
            f"out has shape {list(out.shape)} and type {_type_name(out.dtype)}; the result has shape {list(shape)} and "
            f"type {_type_name(np.dtype(dtype))}. Pass an array like that, or none.",
            code="bad-out",
            argument="out",
            value=out.shape,
        )
    return out, False


def check_apart(out: Array, inputs: Iterable[tuple[str, Array]]) -> None:
    """`out` must not share memory with any of the named inputs."""
    for name, array in inputs:
        if np.may_share_memory(out, array):
            raise InvalidArgumentError(
                f"out shares memory with {name}, which would change while it is read. Pass another array.",
                code="bad-out",
                argument="out",
                value=name,
            )


def _type_name(dtype: "np.dtype[Any]") -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} in the other byte order"


def is_nontemporal(array: Array, row_bytes: int) -> bool:
    """Whether to write `array`, in rows of `row_bytes`, by non-temporal stores."""
    return array.nbytes >= NONTEMPORAL and array.ctypes.data % LINE == 0 and row_bytes % 32 == 0


def clear(array: Array) -> None:
    """Set all bytes of a contiguous array to 0."""
    Workers(array.nbytes).run(kernels.clear.clear, array.reshape(-1).view(np.uint8))


class _Lease:
    """The owner of a block of memory while arrays live in it; goes last, and then gives the block back.

    `__del__` may run anywhere, in the middle of another call too. When the interpreter ends, modules may be empty
    already, and the block need not be kept.
    """

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: Array) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self._give_back(self._block)

    def _give_back(self, block: Array) -> None:
        if sum(other.nbytes for other in _free_blocks()) + block.nbytes <= pool_limit():
            _free[id(block)] = block


class _Scratch(_Lease):
    """A lease of scratch memory. NumPy takes long to describe an array, so the description is kept with the block."""

    __slots__ = ("_kept",)

    def __init__(self, kept: "tuple[Array, dict[str, Any]]") -> None:
        self._kept = kept
        self._block, self.__array_interface__ = kept

    def _give_back(self, block: Array) -> None:
        if len(_free_scratch) < MOST_FREE_SCRATCH:
            _free_scratch.append(self._kept)


def _leased(block: Array, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
    array: Array = np.asarray(_Lease(block))
    return array[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _free_blocks() -> list[Array]:
    while True:
        with suppress(RuntimeError):  # a finaliser may give a block back in the middle
            return list(_free.values())


def _take(nbytes: int) -> Array | None:
    """The smallest free block that holds `nbytes` and is not far too large."""
    fitting = [block for block in _free_blocks() if nbytes <= block.nbytes <= 2 * nbytes]
    for block in sorted(fitting, key=lambda block: block.nbytes):
        if _free.pop(id(block), None) is not None:  # else another call was faster
            return block
    return None


def clear_pool() -> int:
    """Give back to the operating system what is kept for later results and calls; tells how many bytes these were."""
    dropped = []
    with suppress(LookupError):  # until nothing is left
        while True:
            dropped.append(_free.popitem()[1])
    with suppress(LookupError):
        while True:
            dropped.append(_free_scratch.pop()[0])
    for free in (_free_bytes, _free_zeros):
        with suppress(LookupError):
            while True:
                dropped.append(free.pop()[0])
    return sum(block.nbytes for block in dropped)


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


def borrow_work(sums: "np.dtype[Any]") -> tuple[Array, Array]:
    """Room for the kernel of a small call, and for its factors; give it back with `return_work`.

    What an error keeps from being given back is dropped, and made anew when it is needed.
    """
    try:
        return _free_work[sums].pop()
    except LookupError:
        return np.empty(SMALL_WORK, np.int64), np.empty(SMALL, sums)


def return_work(work: tuple[Array, Array]) -> None:
    """Give back what `borrow_work` lent."""
    _free_work.setdefault(work[1].dtype, []).append(work)


def borrow(nbytes: int, *, zero: bool = False) -> tuple[Array, int]:
    """Bytes from a cache line on, and their address; give them back with `give_back`.

    Those that are asked to be zero, must be zero again then.
    """
    free = _free_zeros if zero else _free_bytes
    try:
        kept = free.pop()
        if kept[0].nbytes >= nbytes + LINE:
            return kept
    except IndexError:
        pass
    block = allocate((nbytes + nbytes // 4 + LINE,), np.uint8, zero=zero)
    return block, -(-block.ctypes.data // LINE) * LINE


def give_back(kept: tuple[Array, int], *, zero: bool = False) -> None:
    """Take back what `borrow` lent."""
    free = _free_zeros if zero else _free_bytes
    if len(free) < MOST_FREE_SCRATCH and kept[0].nbytes <= MOST_SCRATCH:
        free.append(kept)


def scratch(size: int, dtype: Any) -> Array:
    """Memory that is kept for the next call when its last array is dropped; it is not zeroed.

    New pages cost more than what is written to them, so small calls would pay more for scratch than for work.
    """
    nbytes = size * np.dtype(dtype).itemsize
    if nbytes <= SMALL_SCRATCH:
        return np.empty(size, dtype)  # from pages that the process has
    if nbytes > MOST_SCRATCH:
        return allocate((size,), dtype)
    try:
        kept = _free_scratch.pop()
    except IndexError:
        kept = None
    if kept is None or kept[0].nbytes < nbytes:
        # From 4 MB on, NumPy asks for huge pages.
        block = np.empty(max(nbytes + nbytes // 4, LEAST_SCRATCH), np.uint8)
        kept = block, block.__array_interface__
    lent: Array = np.asarray(_Scratch(kept))
    return lent[:nbytes].view(dtype)


def buffers(size: int, output: Array) -> Array:
    """A little scratch in which parts of `output` are made before they are copied there; it is not kept.

    It begins half a page from where `output` does: processors take a load and a store for the same place if they are
    whole pages apart, and wait.
    """
    room = np.empty(size * output.itemsize + PAGE, np.uint8)
    first = (output.ctypes.data + PAGE // 2 - room.ctypes.data) % PAGE
    return room[first : first + size * output.itemsize].view(output.dtype)


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
