"""CRC-32C (Castagnoli), sixteen bytes at a time by tables: the checksum of TensorFlow's checkpoints."""

import numpy as np

from rowgrad._kernels.compile import kernel


@kernel
def update(data, crc, tables):
    """The checksum of what `crc` is the checksum of, followed by `data`; `tables` is uint32, [16, 256]."""
    found = np.uint32(~np.uint32(crc))
    whole = data.size - data.size % 16
    for at in range(0, whole, 16):
        found ^= (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        found = (
            tables[15, found & 255] ^ tables[14, (found >> 8) & 255] ^ tables[13, (found >> 16) & 255]
            ^ tables[12, found >> 24] ^ tables[11, data[at + 4]] ^ tables[10, data[at + 5]] ^ tables[9, data[at + 6]]
            ^ tables[8, data[at + 7]] ^ tables[7, data[at + 8]] ^ tables[6, data[at + 9]] ^ tables[5, data[at + 10]]
            ^ tables[4, data[at + 11]] ^ tables[3, data[at + 12]] ^ tables[2, data[at + 13]] ^ tables[1, data[at + 14]]
            ^ tables[0, data[at + 15]]
        )  # fmt: skip
    for at in range(whole, data.size):
        found = tables[0, (found ^ np.uint32(data[at])) & 255] ^ (found >> np.uint32(8))
    return np.uint32(~found)
