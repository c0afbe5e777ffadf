"""Columns of CSV files as arrays: whole numbers int64, other numbers float64, everything else text.

The first line names the columns if any of it is not a number. Without a name the whole table is read, as a matrix,
which must then be of numbers. Numbers are written as other programs write them: what only Python takes for one
(``1_000``, digits of other scripts) is refused where a number is due.
"""

import csv
from pathlib import Path

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import FileError


def read_csv(path: Path, column: str | None) -> Array:
    """The column called `column` (or at that position, from 0), or all of them as a matrix."""
    rows, lines = _rows(path)
    names = [str(position) for position in range(len(rows[0]))]
    if _numbers(rows[0]) is None:
        names = [name.strip() for name in rows[0]]
        del rows[0], lines[0]
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(names):
            raise FileError(f"{path}: line {line} has {len(row)} cells, and the first one has {len(names)}.")
    if column is not None and column not in names:
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise FileError(f"{path} has no column {column!r}; it has {shown}.", code="no-such-part")
    if column is not None or len(names) == 1:
        position = names.index(column) if column is not None else 0
        names = names[position : position + 1]
        cells = [row[position].strip() for row in rows]
    else:
        cells = [cell.strip() for row in rows for cell in row]
    numbers = _numbers(cells)
    if numbers is None and len(names) == 1:
        return np.array(cells, object)
    at = _odd(cells, numbers)
    if at is not None:
        row_at, position = divmod(at, len(names))
        raise _refused(f"{path}: line {lines[row_at]}, column {names[position]}", cells[at])
    assert numbers is not None
    return numbers if len(names) == 1 else numbers.reshape(len(rows), len(names))


def _rows(path: Path) -> tuple[list[list[str]], list[int]]:
    """The rows that have cells, and the line on which each begins."""
    rows, lines = [], []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            before = 0
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(before + 1)
                before = reader.line_num
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read as CSV ({error}).") from error
    if not rows:
        raise FileError(f"{path} is empty.")
    return rows, lines


def _numbers(cells: list[str]) -> Array | None:
    """The numbers that Python reads in the cells; None if there is anything else."""
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array([float(cell) for cell in cells], np.float64)
    except ValueError:
        return None


def _odd(cells: list[str], numbers: Array | None) -> int | None:
    """The first cell that is no number in plain digits, or is one that has become infinite; None if there is none."""
    if numbers is not None and _is_plain("".join(cells)) and np.isfinite(numbers).all():
        return None
    return next((at for at, cell in enumerate(cells) if _what_is_odd(cell)), None)


def _what_is_odd(cell: str) -> str:
    numbers = _numbers([cell])
    if numbers is None:
        return ", not a number."
    if not _is_plain(cell):
        return "; numbers are written with the digits 0 to 9, without signs between them."
    if np.isinf(numbers[0]) and any(digit in cell for digit in "0123456789"):
        return ", too large a number for float64."
    return ""


def _is_plain(text: str) -> bool:
    return text.isascii() and "_" not in text


def _refused(where: str, cell: str) -> FileError:
    what = _what_is_odd(cell)
    shown = cell if len(cell) <= 60 else f"{cell[:57]}..."
    return FileError(f"{where}, is {shown!r}{what}", "name one column." if what.startswith(", not") else "")
