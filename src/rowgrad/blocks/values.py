"""Arrays in few words: elements as text, small arrays as one line, large ones as a grid of means and a summary."""

from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import BFLOAT16, Array

MOST_CELLS = 64  # rows and columns of a heat-map
MOST_READ = 2**22  # elements that means are made of; of more, a sample is taken
CHUNK = 2**20


def plain(array: Array) -> Array:
    """`array` in a type that NumPy can calculate with; texts stay as they are."""
    if array.dtype.names:
        array = array[array.dtype.names[0]]
    return array.astype(np.float32) if array.dtype == BFLOAT16 else array


def is_text(array: Array) -> bool:
    """Whether `array` holds strings."""
    return dtypes.name_of(array.dtype) == "string"


def signal_text(array: Array) -> str:
    """Type and shape: ``float32 [3, 4]``."""
    return f"{dtypes.name_of(array.dtype)} [{', '.join(map(str, array.shape))}]"


def element(value: Any) -> str:
    """One element: six digits for floating-point numbers, quotes around text."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, complex | np.complexfloating):
        return f"{complex(value):.6g}"
    return f"{float(value):.6g}"


def brief(array: Array, most: int) -> str:
    """`array` in one line of `most` characters: all of it, or its type and shape."""
    if array.size <= 16 and array.ndim <= 3 and (array.size or array.ndim < 2):
        text = _listed(plain(array))
        if len(text) <= most:
            return text
        if array.ndim == 0:
            return text[: most - 1] + "…"
    return signal_text(array)


def _listed(array: Array) -> str:
    if array.ndim == 0:
        return element(array[()])
    return f"[{', '.join(_listed(np.asarray(item)) for item in array)}]"


def rows_of(array: Array) -> Array:
    """`array` as a matrix: vectors are one row, more than two axes become rows of the last."""
    if array.ndim == 2:
        return array
    return array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


class Grid(NamedTuple):
    """Means of a matrix, at most `MOST_CELLS` each way; NaN where anything is no number.

    `each` says how many rows and columns a cell stands for, at most; `sampled`, that not all of them were read.
    """

    cells: Array
    each: tuple[int, int]
    sampled: bool


def grid(matrix: Array) -> Grid:
    """The means of a matrix that has elements."""
    shape = matrix.shape
    sampled = matrix.size > MOST_READ
    if sampled:
        rows, columns = (_evenly(size, MOST_CELLS * 16) for size in shape)
        matrix = matrix[np.ix_(rows, columns)]
    values = plain(matrix)
    values = np.abs(values.astype(np.complex128)) if values.dtype.kind == "c" else values.astype(np.float64)
    sums, counts = values, np.ones(values.shape)
    for axis in (0, 1):
        size = values.shape[axis]
        starts = _evenly(size, MOST_CELLS)
        if len(starts) < size:
            with np.errstate(all="ignore"):
                sums = np.add.reduceat(sums, starts, axis)
                counts = np.add.reduceat(counts, starts, axis)
    cells = sums / counts
    cells[~np.isfinite(cells)] = np.nan
    each = tuple(-(-size // min(size, MOST_CELLS)) for size in shape)
    return Grid(cells, (each[0], each[1]), sampled)


def _evenly(size: int, most: int) -> Array:
    parts = min(size, most)
    return np.arange(parts) * size // parts


def statistics(array: Array) -> str:
    """A line on all elements: least, largest, mean, and how many are no numbers."""
    kind = plain(array[:0].reshape(-1) if array.ndim else array.reshape(1)).dtype.kind
    flat = array.reshape(-1)
    if kind not in "biufc":
        return f"{flat.size} strings"
    least, largest, total, count = np.inf, -np.inf, 0.0, 0
    for start in range(0, flat.size, CHUNK):
        part = plain(flat[start : start + CHUNK])
        if kind == "c":
            part = np.abs(part.astype(np.complex128))
        part = part[np.isfinite(part)]
        if part.size:
            least, largest = min(least, part.min()), max(largest, part.max())
            total, count = total + float(part.sum(dtype=np.float64)), count + part.size
    if kind == "b":
        return f"{int(total)} of {flat.size} are True"
    parts = []
    if count:
        named = ("min", "max", "mean") if kind != "c" else ("min |x|", "max |x|", "mean |x|")
        numbers = (least, largest, np.float64(total / count))
        parts = [f"{name} {element(value)}" for name, value in zip(named, numbers, strict=True)]
    if count < flat.size:
        parts.append(f"{flat.size - count} not finite")
    return " · ".join(parts)
