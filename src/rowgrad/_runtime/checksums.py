"""CRC-32C, the checksum of TensorFlow's checkpoints. A few bytes are summed in Python, without loading Numba."""

from functools import cache
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._runtime.dtypes import Array

FEW = 1 << 13  # bytes that Python sums in the time in which Numba is not even loaded


@cache
def _tables() -> Array:
    """For each byte and each distance from the end of a block of sixteen, what it adds to the checksum."""
    tables = np.zeros((16, 256), np.uint32)
    for byte in range(256):
        found = byte
        for _ in range(8):
            found = (found >> 1) ^ (0x82F63B78 if found & 1 else 0)
        tables[0, byte] = found
    for distance in range(1, 16):
        before = tables[distance - 1]
        tables[distance] = (before >> np.uint32(8)) ^ tables[0][before & 255]
    tables.flags.writeable = False
    return tables


@cache
def _table() -> list[int]:
    found: list[int] = _tables()[0].tolist()
    return found


def crc32c(data: Any, crc: int = 0) -> int:
    """The checksum of `data` (bytes or a contiguous buffer) after what `crc` is the checksum of."""
    data = memoryview(data).cast("B")
    if len(data) > FEW:
        return int(kernels.crc32c.update(np.frombuffer(data, np.uint8), np.uint32(crc), _tables()))
    table, found = _table(), crc ^ 0xFFFFFFFF
    for byte in data:
        found = table[(found ^ byte) & 255] ^ (found >> 8)
    return found ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """How TensorFlow and LevelDB store checksums: a checksum of data that holds checksums is a bad one."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
