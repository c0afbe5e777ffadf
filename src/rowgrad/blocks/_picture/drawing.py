"""The pen of pictures: escaped text, estimated widths, and the few forms that a page is drawn with.

Widths are estimates for the widest of the usual fonts, so that text fits wherever the picture is opened.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from rowgrad.blocks.looks import POINTS, Look

SANS = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', 'Noto Sans', 'DejaVu Sans', Verdana, sans-serif"
MONO = "Menlo, Consolas, 'Liberation Mono', 'Noto Sans Mono', 'DejaVu Sans Mono', 'Courier New', monospace"
MONO_WIDTH = 0.605  # of a character, in units of the size
GONE = "…"

# What XML cannot hold, not even escaped.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNSEEN = re.compile("[\\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_NARROW, _WIDE = set("iljI.,:;'|!()[]ft/ "), set("mwMW@%—…→←")


def escape(text: str) -> str:
    """`text` for the inside of an element; what cannot be written, or would turn the line around, becomes a sign."""
    text = NOT_XML.sub("\ufffd", _UNSEEN.sub(lambda match: " " if match[0] in " \t\n\r" else "\ufffd", text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quoted(text: str) -> str:
    """`text` as the value of an attribute, with its quotes."""
    return quoteattr(NOT_XML.sub("\ufffd", text))


def number(value: float) -> str:
    """A coordinate, as short as it can be."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def width(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    """How wide `text` will be, at most."""
    if mono and text.isascii():
        return len(text) * MONO_WIDTH * size
    total = 0.0
    for sign in text:
        if unicodedata.east_asian_width(sign) in "WF":
            total += 1.05
        elif mono:
            total += MONO_WIDTH
        elif sign in _NARROW:
            total += 0.37
        elif sign in _WIDE:
            total += 0.96
        else:
            total += 0.7 if sign.isupper() else 0.62
    return total * size * (1.08 if bold else 1)


def shorten(
    text: str, room: float, size: float, *, bold: bool = False, mono: bool = False, middle: bool = False
) -> str:
    """`text`, or as much of it as fits into `room`: its beginning, or both its ends."""
    if len(text) > 1000:
        text = text[:500] + GONE + text[-499:] if middle else text[:1000]
    if width(text, size, bold=bold, mono=mono) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        kept = (low + high + 1) // 2
        if width(_part(text, kept, middle), size, bold=bold, mono=mono) <= room:
            low = kept
        else:
            high = kept - 1
    return _part(text, low, middle)


def _part(text: str, kept: int, middle: bool) -> str:
    if not middle or kept < 4:
        return text[:kept] + GONE
    return text[: kept - kept // 2] + GONE + text[len(text) - kept // 2 :]


def wrap(text: str, room: float, size: float, most: int) -> list[str]:
    """`text` in lines that fit into `room`, `most` of them."""
    lines = [""]
    for word in re.split(r"(?<=[\s,:])(?=\S)", " ".join(text[:4000].split())):
        while True:
            joined = lines[-1] + word
            if width(joined.rstrip(), size) <= room:
                lines[-1] = joined
                break
            if lines[-1]:
                lines.append("")
                continue
            fits = max(1, len(shorten(word, room, size)) - 1)
            lines[-1], word = word[:fits], word[fits:]
            lines.append("")
    lines = [line.rstrip() for line in lines if line.strip()]
    if len(lines) > most:
        lines = [*lines[: most - 1], shorten(lines[most - 1] + " " + GONE * 2, room, size)]
    return lines


class Panel(NamedTuple):
    """A piece of a picture with its size, drawn from its upper left corner on."""

    width: float
    height: float
    parts: list[str]


def stack(panels: Iterable[Panel], gap: float = 0) -> Panel:
    """Panels below each other."""
    wide = y = 0.0
    parts: list[str] = []
    for panel in panels:
        y += gap if parts else 0
        parts.append(at(0, y, panel.parts) if y else "".join(panel.parts))
        wide, y = max(wide, panel.width), y + panel.height
    return Panel(wide, y, parts)


def at(x: float, y: float, parts: Iterable[str]) -> str:
    """Parts, moved to a place."""
    return f'<g transform="translate({number(x)} {number(y)})">{"".join(parts)}</g>'


def text(x: float, y: float, words: str, kind: str, anchor: str = "") -> str:
    """A line of text; `kind` is its class in the picture's style, `anchor` is ``"middle"`` or ``"end"``."""
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{number(x)}" y="{number(y)}" class="{kind}"{anchor}>{escape(words)}</text>'


def box(x: float, y: float, wide: float, high: float, *, fill: str, stroke: str = "", radius: float = 0,
        more: str = "") -> str:  # fmt: skip
    """A rectangle."""
    line = f' stroke="{stroke}"' if stroke else ""
    corners = f' rx="{number(radius)}"' if radius else ""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(wide)}" height="{number(high)}"'
    return f'<rect {place}{corners} fill="{fill}"{line}{more}/>'


def glyph(look: Look, x: float, y: float, *, hollow: bool = False, colour: str = "") -> str:
    """The sign of a pin, about ten across."""
    ink = colour or look.colour
    paint = f'fill="#ffffff" stroke="{ink}" stroke-width="2"' if hollow or look.shape == "ring" else (
        f'fill="{ink}" stroke="#ffffff" stroke-width="1.2"')  # fmt: skip
    if look.shape in ("circle", "ring"):
        return f'<circle cx="{number(x)}" cy="{number(y)}" r="5" {paint}/>'
    points = " ".join(f"{number(x + dx)},{number(y + dy)}" for dx, dy in POINTS[look.shape])
    return f'<polygon points="{points}" {paint}/>'
