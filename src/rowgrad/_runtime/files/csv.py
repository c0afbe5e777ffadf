"""Columns of CSV files as arrays: whole numbers int64, other numbers float64, everything else text.

The first line names the columns if any of it is not a number. Without a name the whole table is read, as a matrix,
which must then be of numbers.
"""

import csv
from pathlib import Path

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import FileError


def read_csv(path: Path, column: str | None) -> Array:
    """The column called `column` (or at that position, from 0), or all of them as a matrix."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read as CSV ({error}).") from error
    if not lines:
        raise FileError(f"{path} is empty.")
    names = [str(position) for position in range(len(lines[0]))]
    first = 1
    if not all(map(_is_number, lines[0])):
        names, first = [name.strip() for name in lines[0]], 2
        del lines[0]
    for number, line in enumerate(lines, first):
        if len(line) != len(names):
            raise FileError(f"{path}: row {number} has {len(line)} cells, and the first one has {len(names)}.")
    if column is not None:
        if column not in names:
            shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            raise FileError(f"{path} has no column {column!r}; it has {shown}.", code="no-such-part")
        position = names.index(column)
        return _typed([line[position].strip() for line in lines])
    if len(names) == 1:
        return _typed([line[0].strip() for line in lines])
    table = _typed([cell.strip() for line in lines for cell in line])
    if table.dtype.kind not in "if":
        at = next(i for i, cell in enumerate(cell for line in lines for cell in line) if not _is_number(cell))
        row, place = divmod(at, len(names))
        raise FileError(
            f"{path}: row {row + first}, column {names[place]}, is {lines[row][place]!r}, not a number.",
            "name one column.",
        )
    return table.reshape(len(lines), len(names))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _typed(cells: list[str]) -> Array:
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array([float(cell) for cell in cells], np.float64)
    except ValueError:
        return np.array(cells, object)
