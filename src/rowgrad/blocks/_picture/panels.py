"""Results in a picture: small arrays as tables of numbers, large ones as heat-maps, and messages in place of both."""

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import values
from rowgrad.blocks._picture import drawing
from rowgrad.blocks._picture.drawing import MONO_WIDTH, Panel
from rowgrad.blocks._picture.heatmap import SMALL, heat_map

MOST = 8  # rows and columns of a table
MOST_TEXT_COLUMNS = 3
WIDEST_TEXT = 150
SIZE, LINE, CAPTION = 10.5, 15, 18
CHARACTER = SIZE * MONO_WIDTH
BETWEEN = 1.6 * CHARACTER  # columns of numbers


def of_output(name: str, array: Array) -> Panel:
    """An output of a block: its name, type and shape, and what it holds."""
    signal = values.signal_text(array)
    start = drawing.width(name, SIZE, bold=True) + 9
    words = f'{drawing.escape(name)} <tspan class="rg-dim" dx="3">{drawing.escape(signal)}</tspan>'
    caption = f'<text x="0" y="11" class="rg-out">{words}</text>'
    head = Panel(start + drawing.width(signal, SMALL), CAPTION, [caption])
    return drawing.stack([head, _content(array)])


def message(text: str, room: float, most: int, kind: str) -> Panel:
    """A few lines of text."""
    lines = drawing.wrap(text, room, SIZE, most)
    parts = [drawing.text(0, 11 + LINE * i, line, kind) for i, line in enumerate(lines)]
    return Panel(max((drawing.width(line, SIZE) for line in lines), default=0), LINE * len(lines), parts)


def _content(array: Array) -> Panel:
    if array.size == 0:
        return message("empty", 100, 1, "rg-dim")
    if values.is_text(array):
        return _texts(array)
    if array.ndim <= 1 and array.size <= MOST * MOST:
        flat, starts = values.plain(array).reshape(-1), range(0, array.size, MOST)
        return _table([flat[i : i + MOST] for i in starts], [str(i) for i in starts] if array.size > MOST else [])
    rows = values.rows_of(array)
    if len(rows) <= MOST and rows.shape[1] <= MOST:
        return _table(list(values.plain(rows)), _row_labels(array.shape[:-1], len(rows)))
    return heat_map(array)


def _row_labels(shape: tuple[int, ...], count: int) -> list[str]:
    return [",".join(str(i) for i in np.unravel_index(row, shape)) for row in range(count)]


def _labels(labels: list[str]) -> Panel:
    """Dim labels before the rows of a table."""
    wide = max((len(label) for label in labels), default=0) * CHARACTER
    parts = [drawing.text(wide, 11 + LINE * i, label, "rg-row", "end") for i, label in enumerate(labels)]
    return Panel(wide + 10 if labels else 0, LINE * len(labels), parts)


def _table(rows: list[Array], labels: list[str]) -> Panel:
    """Numbers aligned at the decimal point."""
    cells = [[values.element(value) for value in row] for row in rows]
    before = _labels(labels)
    x, parts = before.width, before.parts
    for column in range(len(cells[0])):
        texts = [row[column] for row in cells if column < len(row)]
        tails = [len(text) - _whole(text) for text in texts]
        x += max(map(_whole, texts)) * CHARACTER
        for line, (text, tail) in enumerate(zip(texts, tails, strict=True)):
            kind = "rg-odd" if "nan" in text or "inf" in text else "rg-num"
            parts.append(drawing.text(x + tail * CHARACTER, 11 + LINE * line, text, kind, "end"))
        x += max(tails) * CHARACTER + BETWEEN
    return Panel(x - BETWEEN, LINE * len(cells) + 2, parts)


def _whole(text: str) -> int:
    """How many characters stand before the decimal point."""
    return len(text if text.endswith("j") else text.partition(".")[0].partition("e+")[0].partition("e-")[0])


def _texts(array: Array) -> Panel:
    """Strings, as many as there is room for."""
    matrix = array.reshape(-1, 1) if array.ndim < 2 else values.rows_of(array)
    shown = matrix[:MOST, :MOST_TEXT_COLUMNS]
    before = _labels(
        _row_labels(array.shape[:1] if array.ndim < 2 else array.shape[:-1], len(shown)) if array.ndim else []
    )
    x, parts = before.width, before.parts
    for column in range(shown.shape[1]):
        texts = [drawing.shorten(values.element(item), WIDEST_TEXT, SIZE, mono=True) for item in shown[:, column]]
        parts += [drawing.text(x, 11 + LINE * i, text, "rg-num") for i, text in enumerate(texts)]
        x += max(drawing.width(text, SIZE, mono=True) for text in texts) + 12
    left = matrix.size - shown.size
    more = [message(f"and {left} more", 200, 1, "rg-dim")] if left else []
    return drawing.stack([Panel(x - 12, LINE * len(shown) + 2, parts), *more])
