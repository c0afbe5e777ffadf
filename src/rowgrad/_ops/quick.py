"""The short way from arrays to a kernel, for calls whose work takes less time than Python's part of them.

Numba looks at the type of each argument of a call, which takes longer than to check that arrays are of a few types.
`Operator.quick` does the latter, and then calls the machine code itself. All that is unusual is left to
`Operator.compute`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import IDS, NUMPY, Array

NDARRAY = np.ndarray
ID_TYPES = frozenset(NUMPY[name] for name in IDS)
MOST_WAYS = 1024  # types and shapes of rows for which compiled code is remembered


def is_plain(array: Array) -> bool:
    """Whether compiled code can read an array: contiguous and aligned; it may be read-only."""
    flags = array.flags
    return flags.carray or bool(flags.c_contiguous and flags.aligned)


def first_call(kernel: Any, args: tuple[Any, ...]) -> tuple[Any, Callable[..., Any]]:
    """Call a kernel by Numba, which compiles it; gives its result, and the code for arguments of the same types."""
    settled = tuple(arrays.settle(one) if type(one) is NDARRAY else one for one in args)
    return kernel(*settled), kernels.compile.compiled(kernel, settled)


class _Code(dict[tuple[Any, ...], Callable[..., Any]]):
    """The compiled code of kernels, each with what tells the types of its arguments; arrays must be contiguous."""

    def __missing__(self, key: tuple[Any, ...]) -> Callable[..., Any]:
        def first(*args: Any) -> Any:
            result, self[key] = first_call(key[0], args)
            return result

        return first


CODE = _Code()
