"""How the thread that runs a callback rounds: as any other thread, whatever XLA has set it to.

XLA's threads take numbers below the normal range for 0. Threads that help the kernels do not, and the number of threads
must not show in a result.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

ENVIRONMENT = 256  # bytes, more than any system keeps


@cache
def _library() -> tuple[Any, Any] | None:
    """C's functions for the floating-point environment, and its default one; None where they are not found."""
    try:
        library = ctypes.CDLL(None)
        library.fegetenv.argtypes = library.fesetenv.argtypes = [ctypes.c_void_p]
        if sys.platform == "darwin":
            default = ctypes.addressof(ctypes.c_char.in_dll(library, "_FE_DFL_ENV"))
        else:
            default = ctypes.c_void_p(-1).value  # glibc and musl
    except (OSError, AttributeError, TypeError, ValueError):
        return None
    return library, default


def is_known() -> bool:
    """Whether the environment can be changed and restored on this system."""
    return _library() is not None


@contextmanager
def keeping_subnormals() -> Iterator[None]:
    """Within it, this thread rounds as C says by default; afterwards as it did before."""
    found = _library()
    if found is None:
        yield
        return
    library, default = found
    before = ctypes.create_string_buffer(ENVIRONMENT)
    library.fegetenv(before)
    library.fesetenv(default)
    try:
        yield
    finally:
        library.fesetenv(before)
