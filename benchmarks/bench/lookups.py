"""Pooled look-ups: ids, offsets and tables from a fixed seed, the same in every run.

Values are positive, so that sums in any order agree to few rounding errors and a wrong answer is easy to tell from a
rounded one.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

import numpy as np

from rowgrad._runtime.dtypes import Array

SEED = 20_240_607
ZIPF = 1.2  # row r is drawn with a probability like (r + 1) ** -1.2
# How many different ids each categorical feature of the Criteo Kaggle data has (as in DLRM's published runs).
CRITEO = (
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194, 27, 14_992, 5_461_306, 10,
    5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class remembered(Generic[Parameters, Result]):
    """A function that keeps its last result, because all contestants of a case share it; large ones never add up."""

    made: ClassVar[list["remembered[..., Any]"]] = []

    def __init__(self, function: Callable[Parameters, Result]) -> None:
        self._function = function
        self._last: dict[Hashable, Result] = {}
        self.made.append(self)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        key = (args, tuple(kwargs.items()))
        if key not in self._last:
            self._last.clear()  # before the next is made
            self._last[key] = self._function(*args, **kwargs)
        return self._last[key]

    @classmethod
    def forget(cls) -> None:
        """Give back what all of them keep."""
        for one in cls.made:
            one._last.clear()


def ids(random: np.random.Generator, rows: int, count: int, distribution: str) -> Array:
    """`count` ids below `rows`: "zipf" or "uniform"."""
    if distribution == "zipf":
        shares = _shares(rows)
        drawn = np.searchsorted(shares, random.random(count) * shares[-1], side="right")
        drawn = np.minimum(drawn, rows - 1)  # a product may round up to the last share
    else:
        drawn = random.integers(0, rows, count)
    found: Array = drawn.astype(np.int64)
    return found


def offsets(random: np.random.Generator, bags: int, fewest: int, most: int) -> Array:
    """Where each of `bags` bags begins, and where the last one ends."""
    lengths = random.integers(fewest, most + 1, bags) if fewest < most else np.full(bags, most)
    return np.concatenate([[0], np.cumsum(lengths)])


def segments(ends: Array) -> Array:
    """The bag of each id, from offsets."""
    return np.repeat(np.arange(len(ends) - 1, dtype=np.int32), np.diff(ends))


def values(*shape: int, seed: int = 1) -> Array:
    """float32, from 0.5 to 1.5."""
    return np.random.default_rng(SEED + seed).random(shape, dtype=np.float32) + np.float32(0.5)


@lru_cache(maxsize=32)
def _shares(rows: int) -> Array:
    shares: Array = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -ZIPF)
    return shares
