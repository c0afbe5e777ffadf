"""Values, types and sizes that the strategies of all operators draw."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from golden import QUANTISED

Array = np.ndarray[Any, Any]
Args = dict[str, Any]
Random = np.random.Generator

FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
INTEGERS = [np.dtype(f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("", "u")]
REALS = FLOATS + INTEGERS
NUMBERS = [*REALS, np.dtype(np.complex64), np.dtype(np.complex128)]
INEXACT = [*FLOATS, np.dtype(np.complex64), np.dtype(np.complex128)]
ANYTHING = [*NUMBERS, np.dtype(np.bool_), np.dtype(object)]
SLICED = [*NUMBERS, *QUANTISED.values()]

INT64_MAX = 2**63 - 1


def special_floats(dtype: np.dtype[Any]) -> Array:
    info = ml_dtypes.finfo(dtype)
    tiny, small, large = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    one = [np.nan, np.inf, 0.0, 1.0, large, small, tiny, small / 2, 3 * tiny]
    return np.array(one + [-x for x in one]).astype(dtype)


def values(random: Random, dtype: np.dtype[Any], shape: tuple[int, ...], special: float) -> Array:
    """Random values of any type; `special` is how many of them are the ends and corners of its range."""
    size = int(np.prod(shape))
    if dtype.names:
        return values(random, dtype[0], shape, special).view(dtype)
    if dtype.kind == "c":
        part = np.dtype(np.float32 if dtype == np.complex64 else np.float64)
        return values(random, part, (*shape, 2), special).view(dtype).reshape(shape)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind == "O":
        array = np.empty(size, object)
        array[:] = [random.bytes(int(random.integers(0, 5))) for _ in range(size)]
        return array.reshape(shape)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = random.integers(info.min, info.max, size, dtype, endpoint=True)
        corners = np.array([info.min, info.max, 0, 1], dtype)
    else:
        # Magnitudes that differ a little, so that the order of additions shows in the last bits.
        array = (random.standard_normal(size) * 2.0 ** random.integers(-4, 5, size)).astype(dtype)
        corners = special_floats(dtype)
    array = np.where(random.random(size) < special, random.choice(corners, size), array)
    return array.reshape(shape)


def trailing_shapes() -> st.SearchStrategy[tuple[int, ...]]:
    """What follows the first dimension: ranks 1 to 4, zero sizes, and rows past one vector register."""
    few = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    return few | st.integers(1, 40).map(lambda width: (width,))


def index_dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    return st.sampled_from([np.dtype(np.int32), np.dtype(np.int64)])


def randoms() -> st.SearchStrategy[Random]:
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


def specials() -> st.SearchStrategy[float]:
    """Few corners leave most sums finite; many of them meet each other."""
    return st.sampled_from([0.0, 0.05, 0.6])


def scalars(number: int) -> st.SearchStrategy[Any]:
    """A size as users write it: an int, or a scalar array."""
    kinds = [int, np.int64, lambda n: np.array(n, np.int64)]
    if number < 2**31:
        kinds += [np.int32, lambda n: np.array(n, np.int32)]
    return st.sampled_from(kinds).map(lambda kind: kind(number))
