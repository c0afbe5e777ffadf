"""Random numbers that are the same everywhere and for ever: Philox 4x32-10, of a key and a counter.

NumPy does not promise that its own generators give the same numbers in its next version. These are those of Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3" (2011), which TensorFlow's stateless operators use too.
"""

import numpy as np

from rowgrad._runtime.dtypes import Array

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox(key: tuple[int, int], counters: Array) -> Array:
    """The words, uint32 [n, 4], that belong to `counters`, [n, 4], under `key`, two words."""
    c = [counters[:, i].astype(np.uint64) for i in range(4)]
    keys = [word & 0xFFFFFFFF for word in key]
    for _ in range(10):
        first, second = _FACTORS[0] * c[0], _FACTORS[1] * c[2]
        c = [
            (second >> _HALF) ^ c[1] ^ np.uint64(keys[0]),
            second & _LOW,
            (first >> _HALF) ^ c[3] ^ np.uint64(keys[1]),
            first & _LOW,
        ]
        keys = [(word + step) & 0xFFFFFFFF for word, step in zip(keys, _STEPS, strict=True)]
    return np.stack(c, axis=1).astype(np.uint32)


def permutation(size: int, seed: int, stream: int) -> Array:
    """The numbers below `size` in an order that `seed` and `stream` decide."""
    counters = np.zeros((size, 4), np.uint64)
    counters[:, 0] = np.arange(size) & 0xFFFFFFFF
    counters[:, 1] = np.arange(size) >> 32
    counters[:, 2], counters[:, 3] = stream & 0xFFFFFFFF, (stream >> 32) & 0xFFFFFFFF
    words = philox((seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF), counters).astype(np.uint64)
    order: Array = np.argsort(words[:, 0] << _HALF | words[:, 1], kind="stable")
    return order
