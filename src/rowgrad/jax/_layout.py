"""Whether handlers can be registered with the installed jaxlib: it must have the interface that they are written for.

XLA's foreign function interface is a C header, which jaxlib ships. A handler of another version would make JAX lose
its CPU backend, so the header is read first: its version, and the order of the fields that handlers read by position.
"""

import re
import struct
from functools import cache
from pathlib import Path

import jax

from rowgrad.jax._rounding import is_known

VERSIONS = ((0, 1), (0, 2), (0, 3))
# What handlers read of a call frame, and the functions that they call, in the order of the header.
FRAME = ["struct_size", "extension_start", "api", "ctx", "stage", "args", "rets", "attrs"]
BUFFER = ["struct_size", "extension_start", "dtype", "data", "rank", "dims"]
FUNCTIONS = [
    "Error_Create", "Error_GetMessage", "Error_Destroy", "Handler_Register", "Stream_Get", "Type_Register",
    "ExecutionContext_Get", "State_Set", "State_Get", "DeviceMemory_Allocate", "DeviceMemory_Free",
    "ThreadPool_Schedule", "ThreadPool_NumThreads",
]  # fmt: skip


@cache
def version() -> tuple[int, int] | None:
    """The version of the interface, or None where handlers must not be registered."""
    if struct.calcsize("P") != 8 or not is_known():
        return None
    try:
        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    except (AttributeError, OSError, RuntimeError):
        return None
    return read_version(header)


def read_version(header: str) -> tuple[int, int] | None:
    """The version that a header states, or None if it is unknown or a structure differs."""
    numbers = re.findall(r"^#define XLA_FFI_API_M(?:AJOR|INOR) (\d+)", header, re.MULTILINE)
    if len(numbers) != 2 or (int(numbers[0]), int(numbers[1])) not in VERSIONS:
        return None
    functions = re.findall(r"_STRUCT_FIELD\(XLA_FFI_(\w+)\);", header)
    if (
        functions[: len(FUNCTIONS)] != FUNCTIONS
        or _fields(header, "CallFrame")[: len(FRAME)] != FRAME
        or _fields(header, "Buffer") != BUFFER
    ):
        return None
    return int(numbers[0]), int(numbers[1])


def _fields(header: str, name: str) -> list[str]:
    found = re.search(rf"^struct XLA_FFI_{name} {{(.*?)^}};", header, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\s+[^/\n]*?(\w+);", found[1], re.MULTILINE) if found else []
