"""The value types by name, and the way each travels through the kernels.

Strings are whatever NumPy calls text: fixed-width, variable-width, or objects that are all `str` or `bytes`.
"""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = FLOATS + INTEGERS
COMPLEX = ("complex64", "complex128")
NUMBERS = REALS + COMPLEX
PLAIN = (*NUMBERS, "bool", "string")
QUANTISED = ("qint8", "quint8", "qint16", "quint16", "qint32")
IDS = ("int32", "int64")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_QUANTISED_BASE = {"qint8": "i1", "quint8": "u1", "qint16": "i2", "quint16": "u2", "qint32": "i4"}
# TensorFlow's NumPy dtypes for quantised values have a single field named like the type.
NUMPY: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in NUMBERS if name != "bfloat16"},
    "bool": np.dtype(bool),
    "bfloat16": BFLOAT16,
    **{name: np.dtype([(name, base)]) for name, base in _QUANTISED_BASE.items()},
}
_NAMES = {dtype: name for name, dtype in NUMPY.items()}


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of `dtype` as the catalogue spells it; types rowgrad does not know keep NumPy's name."""
    known = _NAMES.get(dtype)
    if known is not None:
        return known
    if dtype.kind in "USOT":
        return "string"
    return _NAMES.get(dtype.newbyteorder("="), dtype.name)


class Summing(NamedTuple):
    """How values of one type are summed: seen as `stored`, `parts` to a value, added up in `sums`."""

    stored: np.dtype[Any]
    sums: np.dtype[Any]
    parts: int


def summing(dtype: np.dtype[Any]) -> Summing:
    """The way sums of `dtype` are made (half and bfloat16 in float32, complex numbers part by part)."""
    return _SUMMING[dtype]


_SUMMING = {
    NUMPY["float16"]: Summing(np.dtype(np.int16), np.dtype(np.float32), 1),
    BFLOAT16: Summing(np.dtype(np.uint16), np.dtype(np.float32), 1),
    NUMPY["complex64"]: Summing(np.dtype(np.float32), np.dtype(np.float32), 2),
    NUMPY["complex128"]: Summing(np.dtype(np.float64), np.dtype(np.float64), 2),
    **{NUMPY[name]: Summing(NUMPY[name], NUMPY[name], 1) for name in ("float32", "float64", *INTEGERS)},
}


def is_summed_as_stored(dtype: np.dtype[Any]) -> bool:
    """Whether sums of `dtype` can be made in place, one number for each value."""
    return _SUMMING[dtype].sums is dtype


WORDS = {size: (np.dtype(f"u{min(size, 8)}"), max(size // 8, 1)) for size in (1, 2, 4, 8, 16)}


def as_words(values: Array) -> tuple[Array, int]:
    """Values as unsigned words for copying, and how many words each takes."""
    word, width = WORDS[values.itemsize]
    return (values if values.ndim == 1 else values.ravel()).view(word), width
