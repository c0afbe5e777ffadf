"""Tables for notebooks, as HTML: small, plain, and with everything escaped that did not come from here."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import BFLOAT16, Array, name_of

MOST_ROWS, MOST_COLUMNS = 10, 12
LONGEST = 60  # characters of a text in a cell


def table(caption: str, heads: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a caption; all of it is escaped."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f'<caption style="text-align: left">{escaped(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def array(caption: str, values: Array) -> str:
    """An array as a table: its first and last rows and columns."""
    signal = f"{name_of(values.dtype)} [{', '.join(map(str, values.shape))}]"
    title = f"{caption}  {signal}".strip()
    if values.size == 0:
        return f"<p>{escaped(title)}: no elements</p>"
    matrix = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(1, -1)
    rows, columns = (_some(size, most) for size, most in zip(matrix.shape, (MOST_ROWS, MOST_COLUMNS), strict=True))
    heads = ["", *("…" if column is None else column for column in columns)]
    body = [["…" if row is None else row,
             *("…" if row is None or column is None else element(matrix[row, column]) for column in columns)]
            for row in rows]  # fmt: skip
    return table(title, heads, body)


def element(value: Any) -> str:
    """One element in few digits."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if getattr(value, "dtype", None) == BFLOAT16 or isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return str(value)


def escaped(value: Any) -> str:
    """`value` as text that HTML shows as it is; a long one is cut."""
    text = str(value)
    if len(text) > LONGEST * 4:
        text = text[: LONGEST * 4] + "…"
    return html.escape("".join(c if c.isprintable() or c == "\n" else "�" for c in text))


def _some(size: int, most: int) -> list[int | None]:
    """The numbers below `size`; of many, the first and the last, with None between."""
    if size <= most:
        return list(range(size))
    return [*range(most - most // 2), None, *range(size - most // 2, size)]
