"""What the command prints: arrays as tables that fit a screen, with labelled rows; and where it prints them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import BFLOAT16, QUANTISED, Array

MOST_ROWS, MOST_COLUMNS = 20, 8
FIRST_ROWS = 5  # of what is too large to be shown whole
LONGEST_TEXT = 40
ROOM = 14  # for the frame, the labels of the rows, and a gap
GAP = "…"


def output() -> Console:
    """Standard output. Created on each call, because tests and pipes replace the stream."""
    return Console(highlight=False, emoji=False)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, emoji=False)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Tell a person at a terminal that something is going on; the first call of an operator compiles its kernels."""
    console = errors()
    if not console.is_terminal:
        yield
        return
    with console.status(f"{what} …"):
        yield


def number(value: Any) -> str:
    """One element, short: six digits for floating-point numbers, quotes around text."""
    if isinstance(value, np.void):
        value = value[0]
    if isinstance(value, str | bytes):
        # Quoted, so that what is in a file cannot steer the terminal.
        text = repr(value if isinstance(value, bytes) else str(value))
        return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}{GAP}"
    if isinstance(value, bool | np.bool_):
        return "True" if value else "False"
    if isinstance(value, complex | np.complexfloating):
        return f"{complex(value):.6g}"
    if isinstance(value, int | np.integer):
        return str(int(value))
    return f"{float(value):.6g}"


def table(
    title: str, rows: Iterable[Sequence[str | Text]], *, headings: Sequence[str] = (), left: Iterable[int] = ()
) -> Panel:
    """A small framed table: the first column labels the rows, the others are aligned right, or `left`."""
    grid = Table(box=None, show_header=bool(headings), header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    lines = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    to_left = {0, *left}
    for column in range(len(headings) or max(map(len, lines), default=0)):
        heading = headings[column] if headings else ""
        grid.add_column(heading, justify="left" if column in to_left else "right", no_wrap=True)
    for line in lines:
        grid.add_row(*line)
    return Panel.fit(grid, title=Text(title, "bold not dim"), title_align="left", border_style="dim", padding=(0, 1))


def matrix(title: str, array: Array, labels: Sequence[str], styles: Sequence[str] = ()) -> Panel:
    """A vector or matrix, one labelled line a row; `styles` colour the rows, so that the eye finds them again."""
    lines: list[list[Text]] = []
    for position, row in enumerate(np.reshape(array, (len(labels), -1))):
        style = styles[position] if styles else ""
        lines.append([Text(labels[position], style), *(Text(number(value), style) for value in row)])
    return table(title, lines)


def side_by_side(console: Console, parts: Sequence[RenderableType], *, indent: int = 2, gap: int = 1) -> None:
    """Print `parts` next to each other, and below each other where the screen is too narrow."""
    line: list[RenderableType] = []
    used = 0
    for part in parts:
        width = console.measure(part).maximum
        if line and indent + used + gap + width > console.width:
            _print_line(console, line, indent, gap)
            line, used = [], 0
        used += width + (gap if line else 0)
        line.append(part)
    _print_line(console, line, indent, gap)


def _print_line(console: Console, parts: Sequence[RenderableType], indent: int, gap: int) -> None:
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_row(*parts)
    console.print(Padding(grid, (0, 0, 0, indent), expand=False))


def result(name: str, array: Array, width: int) -> RenderableType:
    """A result of an operator, on `width` columns: all of it, or a summary of it and its first rows."""
    title = f"{name}  {dtypes.name_of(array.dtype)} {list(array.shape)}"
    if array.ndim == 0:
        return table(title, [[number(array[()])]])
    if array.size == 0:
        return table(title, [["empty"]])
    rows = array.reshape(len(array), -1)
    is_long, is_wide = rows.shape[0] > MOST_ROWS, rows.shape[1] > MOST_COLUMNS
    shown = rows[:FIRST_ROWS] if is_long else rows
    cells, columns = _cells(shown, width)
    if array.ndim == 2:
        headings = ["row", *(GAP if column is None else str(column) for column in columns)]
    else:
        headings = ["row", *("" for _ in columns)]  # a tensor's rows are shown flat, and numbers would mislead
    lines = [[Text(f"{position}", "dim"), *cells[position]] for position in range(len(shown))]
    if is_long:
        lines.append([Text(GAP, "dim"), *(Text(GAP, "dim") for _ in columns)])
    framed = table(title, lines, headings=headings)
    if not (is_long or is_wide):
        return framed
    more = f"the first {len(shown)} of {len(rows)} rows; " if is_long else ""
    return Group(framed, Text(f"  {more}{_statistics(array)}", "dim"))


def _cells(rows: Array, width: int) -> tuple[list[list[Text]], list[int | None]]:
    """The elements as text, of as many columns as fit; None stands for those left out in the middle."""
    total = rows.shape[1]
    columns = list(range(total)) if total <= MOST_COLUMNS else [*range(MOST_COLUMNS - 1), total - 1]
    texts = {column: [number(value) for value in rows[:, column]] for column in columns}
    widths = {column: max(len(str(column)), *map(len, texts[column])) + 2 for column in columns}
    while len(columns) > 2 and sum(widths[column] for column in columns) + ROOM > width:
        del columns[-2]
    shown: list[int | None] = list(columns)
    if len(columns) < total:
        shown.insert(-1, None)
    cells = [
        [Text(GAP, "dim") if column is None else Text(texts[column][position]) for column in shown]
        for position in range(len(rows))
    ]
    return cells, shown


def _statistics(array: Array) -> str:
    values = array
    if dtypes.name_of(array.dtype) in QUANTISED:
        values = array[dtypes.name_of(array.dtype)]
    elif array.dtype == BFLOAT16:
        values = array.astype(np.float32)
    kind = values.dtype.kind
    if kind == "b":
        return f"{int(values.sum())} of {values.size} are True"
    if kind not in "iufc":
        return f"{values.size} strings"
    parts = []
    finite = values[np.isfinite(values)]
    if finite.size < values.size:
        parts.append(f"{values.size - finite.size} not finite")
    if finite.size:
        if kind != "c":
            parts.append(f"min {number(finite.min())}")
            parts.append(f"max {number(finite.max())}")
        parts.append(f"mean {number(finite.mean(dtype=np.complex128 if kind == 'c' else np.float64))}")
    return "  ".join(parts)
