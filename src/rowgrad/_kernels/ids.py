"""Reading and writing int32 and int64 ids by one compiled kernel.

An array of ids comes as 32-bit halves with a step: 1 where it is int32, 2 where it is int64 (low half first).
LLVM joins the two loads again, and no kernel has to be compiled once per combination of id types.
"""

import sys
from typing import Any

import numpy as np

from rowgrad._kernels.compile import inline
from rowgrad._kernels.raw import peek, poke

assert sys.byteorder == "little", "rowgrad's kernels read 64-bit ids as two halves, low half first"


def halves(ids: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, np.dtype[np.int32]], int]:
    """An int32 or int64 vector as its 32-bit halves and their step."""
    return ids.view(np.int32), ids.itemsize // 4


@inline
def read_id(ids, step, position):
    """The id at `position`."""
    if step == 1:
        return np.int64(peek(ids, position))
    return (np.int64(peek(ids, 2 * position + 1)) << 32) | (np.int64(peek(ids, 2 * position)) & 0xFFFFFFFF)


@inline
def bounded_id(ids, step, position, limit):
    """The id at `position` if it is in [0, limit), else the last one that is.

    Another thread may write to a caller's ids between the check and the use, so whatever is used as an address is
    bounded after it was read, not only before.
    """
    return np.int64(min(np.uint64(read_id(ids, step, position)), np.uint64(limit - 1)))


@inline
def write_id(ids, step, position, value):
    """Store `value` at `position`."""
    if step == 1:
        poke(ids, position, value)
    else:
        poke(ids, 2 * position, value)
        poke(ids, 2 * position + 1, value >> 32)
