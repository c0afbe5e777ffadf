"""Arrays as the page shows them: small ones number by number, large ones as a heat-map of means, texts as a table."""

from typing import Any

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import values

MOST_ROWS, MOST_COLUMNS = 32, 12  # of what is shown number by number
MOST_HEAT = 48  # rows and columns of a heat-map
MOST_READ = 16  # rows and columns that are read for one cell of it; of more, these are spread evenly
MOST_TEXTS = 200
LONGEST = 200  # characters of one text


def value_view(array: Array) -> dict[str, Any]:
    """The `Value` that shows `array`."""
    shown: dict[str, Any] = {
        "signal": values.signal_text(array),
        "dtype": dtypes.name_of(array.dtype),
        "shape": list(array.shape),
        "summary": values.statistics(array) if array.size else "no elements",
        "odd": "",
        "kind": "empty",
        "cells": [],
        "heat": None,
    }
    if not array.size:
        return shown
    if "not finite" in shown["summary"]:
        shown["odd"] = odd(values.plain(array))
    matrix = as_matrix(array)
    rows, columns = matrix.shape
    if values.is_text(array):
        if rows > MOST_TEXTS or columns > MOST_COLUMNS:
            shown["summary"] += f" · the first {min(rows, MOST_TEXTS)} × {min(columns, MOST_COLUMNS)} are shown"
        matrix = matrix[:MOST_TEXTS, :MOST_COLUMNS]
        return shown | {"kind": "cells", "cells": cells(matrix)}
    if rows <= MOST_ROWS and columns <= MOST_COLUMNS:
        return shown | {"kind": "cells", "cells": cells(values.plain(matrix))}
    return shown | {"kind": "heat", "heat": heat(matrix)}


def odd(array: Array) -> str:
    """How many elements are not finite, in words."""
    nans, infinite = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    words = [f"{nans} NaN"] if nans else []
    return ", ".join(words + ([f"{infinite} infinit{'y' if infinite == 1 else 'ies'}"] if infinite else []))


def as_matrix(array: Array) -> Array:
    """`array` as rows and columns: a scalar is one cell, a vector one column, more axes are rows of the last."""
    if array.ndim < 2:
        return array.reshape(-1, 1)
    return array if array.ndim == 2 else array.reshape(-1, array.shape[-1])


def cells(matrix: Array) -> list[list[str]]:
    """Every element of a matrix as text."""
    return [[_cell(item) for item in row] for row in matrix]


def _cell(item: Any) -> str:
    if isinstance(item, bytes):
        item = item.decode("utf-8", "replace")
    text = item if isinstance(item, str) else values.element(item)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def heat(matrix: Array, most: int = MOST_HEAT) -> dict[str, Any]:
    """Means of equal tiles; the last ones may be cut. A tile with anything that is no finite number has no mean."""
    row_step, column_step = (-(-size // most) for size in matrix.shape)
    rows, row_starts = _read(matrix.shape[0], row_step)
    columns, column_starts = _read(matrix.shape[1], column_step)
    read = values.plain(matrix[np.ix_(rows, columns)])
    numbers = np.abs(read.astype(np.complex128)) if read.dtype.kind == "c" else read.astype(np.float64)
    with np.errstate(all="ignore"):
        sums = np.add.reduceat(np.add.reduceat(numbers, row_starts, 0), column_starts, 1)
        counts = np.outer(np.diff([*row_starts, len(rows)]), np.diff([*column_starts, len(columns)]))
        means = sums / counts
    finite = means[np.isfinite(means)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    largest = max(abs(low), abs(high))
    return {
        "rows": means.shape[0],
        "columns": means.shape[1],
        "values": [[_rounded(item) for item in row] for row in means],
        "low": _rounded(-largest if low < 0 else 0.0),
        "high": _rounded(largest if high > 0 else 0.0),
        "row_step": row_step,
        "column_step": column_step,
    }


def _read(size: int, step: int) -> tuple[Array, Array]:
    """Which of `size` rows are read, and where among these each tile of `step` begins."""
    within = np.arange(min(step, MOST_READ)) * step // min(step, MOST_READ)
    places = (np.arange(0, size, step)[:, None] + within).reshape(-1)
    places = places[places < size]
    return places, np.flatnonzero(np.diff(places // step, prepend=-1))


def _rounded(number: Any) -> float | None:
    """Six digits, which is more than can be seen."""
    return float(f"{number:.6g}") if np.isfinite(number) else None
