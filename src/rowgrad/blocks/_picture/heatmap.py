"""Arrays as heat-maps: means as colours with zero in the middle of the scale, a legend, and a line on all elements."""

from itertools import pairwise

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import looks, values
from rowgrad.blocks._picture import drawing
from rowgrad.blocks._picture.drawing import Panel

MAP = 192  # the room for the cells, each way
LEVELS = 40  # of colour on either side of zero
LEGEND = 160.0
SMALL, LINE = 9.5, 13


def heat_map(array: Array) -> Panel:
    """`array`, which has elements and holds no texts, as a heat-map."""
    found = values.grid(values.rows_of(array))
    high, wide = found.cells.shape
    cell, tall = max(3, min(32, MAP // wide)), max(3, min(16, MAP // high))
    known = found.cells[np.isfinite(found.cells)]
    low, top = (min(0.0, float(known.min())), max(0.0, float(known.max()))) if known.size else (0.0, 0.0)
    frame = drawing.box(0.5, 0.5, cell * wide, tall * high, fill="none", stroke=looks.ODD, more=' stroke-width="0.6"')
    cells = Panel(cell * wide + 1, tall * high + 7, [_cells(found.cells, max(-low, top), cell, tall), frame])
    kind = values.plain(array.reshape(-1)[:1]).dtype.kind
    notes = [
        values.statistics(array),
        *_means(found, array.ndim > 1),
        *(["colours are absolute values"] * (kind == "c")),
    ]
    lines = [drawing.text(0, 10 + LINE * i, note, "rg-dim") for i, note in enumerate(notes)]
    wide_notes = max(drawing.width(note, SMALL) for note in notes)
    legend = _legend(low, top, kind) if known.size else Panel(0, 0, [])
    return drawing.stack([cells, legend, Panel(wide_notes, LINE * len(notes) + 2, lines)])


def _means(found: values.Grid, is_matrix: bool) -> list[str]:
    """What a cell stands for, if not for one element."""
    if found.each == (1, 1):
        return []
    high, wide = found.cells.shape
    size, each = (f"{high} × {wide}", "{} × {}".format(*found.each)) if is_matrix else (str(wide), str(found.each[1]))
    return [f"{size} cells, means of up to {each}{', sampled' if found.sampled else ''}"]


def _cells(cells: Array, most: float, wide: int, high: int) -> str:
    """One path for each colour; neighbours of one colour in a row are one piece."""
    odd = ~np.isfinite(cells)
    scaled = np.where(odd, 0, cells) / (most or 1) * LEVELS
    levels = np.where(odd, LEVELS + 1, np.round(scaled)).astype(np.int64)
    pieces: dict[int, list[tuple[int, int, int]]] = {}
    for y, row in enumerate(levels):
        edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
        for start, stop in pairwise(edges):
            pieces.setdefault(int(row[start]), []).append((start, stop, y))
    paths = []
    for level, found in sorted(pieces.items()):
        outline = "".join(f"M{start} {y}h{stop - start}v1H{start}z" for start, stop, y in found)
        paths.append(f'<path fill="{colour(level / LEVELS) if level <= LEVELS else looks.ODD}" d="{outline}"/>')
    lines = "".join(f"M{x} {y + 1}l1 -1" for start, stop, y in pieces.get(LEVELS + 1, []) for x in range(start, stop))
    if lines:  # cells that hold no number are grey, with a line across each
        thin = f"{1.2 / min(wide, high):.2f}"
        paths.append(f'<path stroke="#ffffff" stroke-width="{thin}" shape-rendering="auto" d="{lines}"/>')
    return f'<g transform="translate(.5 .5) scale({wide} {high})" shape-rendering="crispEdges">{"".join(paths)}</g>'


def _legend(low: float, top: float, kind: str) -> Panel:
    """The scale: its ends, and zero where it lies between them."""
    if low == top:
        return Panel(0, 0, [])
    steps, most = 24, max(-low, top)
    parts = []
    for step in range(steps):
        share = (low + (top - low) * (step + 0.5) / steps) / most
        parts.append(drawing.box(LEGEND * step / steps, 0, LEGEND / steps, 8, fill=colour(share)))
    parts = [f'<g shape-rendering="crispEdges">{"".join(parts)}</g>']
    parts.append(drawing.box(0, 0, LEGEND, 8, fill="none", stroke=looks.ODD, more=' stroke-width="0.6"'))
    ends = ("False", "True") if kind == "b" else (f"{low:.4g}", f"{top:.4g}")
    parts += [drawing.text(0, 18, ends[0], "rg-dim"), drawing.text(LEGEND, 18, ends[1], "rg-dim", "end")]
    zero = LEGEND * -low / (top - low)
    if low and top:
        parts.append(f'<path d="M{drawing.number(zero)} 0v8" stroke="{looks.DIM}" stroke-width="0.8"/>')
    if drawing.width(ends[0], SMALL) + 6 < zero < LEGEND - drawing.width(ends[1], SMALL) - 6:
        parts.append(drawing.text(zero, 18, "0", "rg-dim", "middle"))
    return Panel(LEGEND, 24, parts)


def colour(share: float) -> str:
    """The colour of a value between −1 and 1, in units of the largest."""
    scale = [*looks.BELOW, looks.ZERO, *looks.ABOVE]
    place = (max(-1.0, min(1.0, share)) + 1) / 2 * (len(scale) - 1)
    index = min(int(place), len(scale) - 2)
    part = place - index
    mixed = (round(a + (b - a) * part) for a, b in zip(scale[index], scale[index + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
