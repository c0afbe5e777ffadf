"""The picture of a page: self-contained SVG, the same bytes for the same page, and with the page itself inside.

`cards` draws the blocks, `routes` finds places and ways; here they are put together. A picture can be opened again:
`page_in_svg` finds the page in it, and nothing that the file asks for is ever loaded or expanded.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.parsers import expat

from rowgrad.blocks import looks
from rowgrad.blocks._picture import drawing
from rowgrad.blocks._picture.cards import LABEL, Card, Piece, card, label_width, note_piece
from rowgrad.blocks._picture.drawing import MONO, NOT_XML, SANS, escape, number, quoted
from rowgrad.blocks._picture.frames import group_frames, group_results
from rowgrad.blocks._picture.routes import Routes, Way, spread
from rowgrad.blocks.model import Wire
from rowgrad.blocks.results import DONE, FAILED, SKIPPED, WAITING, BlockResult
from rowgrad.errors import FileError, PageError

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session
    from rowgrad.blocks.page import Page

MARGIN = 32
DOTS = 24  # from one dot of the background to the next
NARROWEST = 420
TITLE = 58  # the room for the title and the caption
PAGE_ID = "rowgrad-page"
MOST_BYTES = 64 * 2**20  # of a picture that is read, and of a page that is put into one
MOST_TOLD = 40  # blocks that the description lists

STYLE = f"""
.rowgrad text{{font-family:{SANS};fill:{looks.INK}}}
.rowgrad .rg-title{{font-size:20px;font-weight:700}}
.rowgrad .rg-caption{{font-size:12px;fill:{looks.DIM}}}
.rowgrad .rg-id{{font-size:13px;font-weight:700}}
.rowgrad .rg-op{{font-size:10px;fill:{looks.DIM}}}
.rowgrad .rg-pin{{font-size:11.5px}}
.rowgrad .rg-missing{{font-size:11.5px;fill:{looks.ERROR}}}
.rowgrad .rg-attr{{font-size:11.5px;fill:{looks.DIM}}}
.rowgrad .rg-label{{font-size:{LABEL}px}}
.rowgrad .rg-out{{font-size:10.5px;font-weight:700}}
.rowgrad .rg-dim{{font-size:9.5px;font-weight:400;fill:{looks.DIM}}}
.rowgrad .rg-error{{font-size:10.5px;fill:{looks.ERROR}}}
.rowgrad .rg-note{{font-size:10.5px}}
.rowgrad .rg-stale{{font-size:10px;fill:{looks.STALE}}}
.rowgrad .rg-group{{font-size:12px;font-weight:700;fill:{looks.DIM}}}
.rowgrad .rg-num,.rowgrad .rg-row,.rowgrad .rg-odd{{font-family:{MONO};font-size:10.5px;fill:{looks.INK}}}
.rowgrad .rg-row{{fill:#8a94a0}}
.rowgrad .rg-odd{{fill:{looks.ERROR};font-weight:700}}
.rowgrad .rg-skipped text{{fill:#8a94a0}}
"""


def to_svg(page: "Page", session: "Session | None" = None, *, embed: bool = True) -> str:
    """The picture of `page`; with a session, its results too. Neither is changed. `embed` puts the page into it."""
    results = _results(page, session) if session is not None else {}
    shown = page.view()
    seen = {**results, **group_results(page, results)}
    cards, notes = placed(shown, seen)
    pieces = [*cards.values(), *notes]
    frames = group_frames(shown, cards)
    wires, ways = _wires(shown, cards)
    labels = _labels(shown, cards)
    left = min([*(piece.x - 8 for piece in pieces), *(f.x for f in frames), *(way.left for way in ways)], default=0)
    top = min([*(piece.y for piece in pieces), *(f.y for f in frames), *(way.top for way in ways)], default=0)
    right = max([*(piece.x + piece.reach for piece in pieces), *(f.right for f in frames),
                 *(way.right for way in ways)], default=left)  # fmt: skip
    bottom = max([*(piece.bottom for piece in pieces), *(f.bottom for f in frames), *(way.bottom for way in ways)],
                 default=top)  # fmt: skip
    caption, caption_width = _caption(page, cards, results)
    title = drawing.shorten(page.name, max(right - left, NARROWEST), 20, bold=True)
    right = max(right, left + NARROWEST, left + caption_width)
    x, y = left - MARGIN, top - TITLE - MARGIN
    wide, high = right - left + 2 * MARGIN, bottom - y + MARGIN + 8 * bool(pieces)
    size = f'width="{number(wide)}" height="{number(high)}" viewBox="{_view(x, y, wide, high)}"'
    name = escape(f"{page.name}: {_count(len(page), 'block')}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rowgrad" {size} role="img" aria-labelledby="rg-title rg-desc" '
        f"aria-label={quoted(name)}>",
        f'<title id="rg-title">{name}</title>',
        f'<desc id="rg-desc">{escape(_told(shown, seen))}</desc>',
        _embedded(page) if embed else "",
        f"<style>{STYLE}</style>",
        drawing.box(x, y, wide, high, fill=looks.PAPER),
        _dots(x, y, wide, high),
        drawing.text(left, top - TITLE + 4, title, "rg-title"),
        drawing.at(left, top - TITLE + 24, caption),
        *(drawing.at(frame.x, frame.y, frame.parts) for frame in frames),
        '<g fill="none" stroke-width="1.8" stroke-linecap="round">',
        *wires,
        "</g>",
        *labels,
    ]
    if not pieces:
        parts.append(drawing.text(left, top, "There are no blocks on this page yet.", "rg-caption"))
    parts += [drawing.at(piece.x, piece.y, piece.parts) for piece in pieces]
    return "\n".join(part for part in [*parts, "</svg>"] if part) + "\n"


def placed(page: "Page", results: Mapping[str, BlockResult]) -> tuple[dict[str, Card], list[Piece]]:
    """The cards of all blocks, and the notes, where they are in the picture."""
    cards = {block.id: card(page, block, results.get(block.id)) for block in page}
    notes = {f":{note.id}": note_piece(note) for note in page.notes}  # no block is called so
    spread({**cards, **notes})
    return cards, list(notes.values())


def _dots(x: float, y: float, wide: float, high: float) -> str:
    """A grid of dots, as dashes without length; of patterns, resvg makes hard work."""
    rows = range(int((high - 12) / DOTS) + 1)
    lines = "".join(f"M{_view(x + 12, y + 12 + row * DOTS)}h{number(wide - 24)}" for row in rows)
    dots = f'stroke-width="1.6" stroke-linecap="round" stroke-dasharray="0 {DOTS}"'
    return f'<path d="{lines}" stroke="{looks.FAINT}" {dots}/>'


def _view(*numbers: float) -> str:
    return " ".join(map(number, numbers))


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _results(page: "Page", session: "Session") -> dict[str, BlockResult]:
    """What the session knows; blocks that cannot run because of another say so."""
    found = dict(session.results())
    for id in page.order():
        result = found.get(id)
        if result is None or result.status != WAITING:
            continue
        for _, wire in page[id].wires():
            source = found.get(wire.block)
            if source is not None and source.status in (FAILED, SKIPPED):
                needs = source.needs if source.status == SKIPPED else wire.block
                found[id] = BlockResult(id, page[id].op, SKIPPED, needs=needs)
                break
    return found


def _wires(page: "Page", cards: Mapping[str, Card]) -> tuple[list[str], list[Way]]:
    routes = Routes(cards)
    parts, ways = [], []
    for block in page:
        for pin, wire in block.wires():
            way = routes.way(wire, block.id, pin)
            ways.append(way)
            signal = cards[wire.block].signals[wire.pin]
            words = escape(f"{wire} → {block.id}:{pin}, {signal}")
            ink = looks.pin_look(signal.dtype).colour
            parts.append(f'<path class="rg-wire" stroke="{ink}" d="{way.path}"><title>{words}</title></path>')
    return parts, ways


def _labels(page: "Page", cards: Mapping[str, Card]) -> list[str]:
    """Type and shape at every output: on its wire, or alone where it has none."""
    used = {wire for block in page for _, wire in block.wires()}
    parts = []
    for source in cards.values():
        for pin, label in source.labels.items():
            x, y = source.right + 9, source.y + source.pins_out[pin]
            signal = source.signals[pin]
            drawn = drawing.text(x + 5, y + 3.5, label, "rg-label")
            if Wire(source.block.id, pin) in used:
                ink, wide, thin = looks.pin_look(signal.dtype).colour, label_width(label) - 14, ' stroke-width="0.7"'
                drawn = drawing.box(x, y - 7.5, wide, 15, fill=looks.PAPER, stroke=ink, radius=4, more=thin)
                drawn += drawing.text(x + wide / 2, y + 3.5, label, "rg-label", "middle")
            title = escape(f"{source.block.id}:{pin} is {signal}")
            parts.append(f'<g class="rg-signal"><title>{title}</title>{drawn}</g>')
    return parts


def _caption(page: "Page", cards: Mapping[str, Card], results: Mapping[str, BlockResult]) -> tuple[list[str], float]:
    """What is on the page, and what the signs of its pins mean."""
    said = [_count(len(page), "block")]
    for status, word in ((DONE, "done"), (FAILED, "failed"), (SKIPPED, "skipped"), (WAITING, "not run yet")):
        count = sum(result.status == status for result in results.values())
        said += [f"{count} {word}"] if count else []
    text = " · ".join([*said, "rowgrad"])
    parts, x = [drawing.text(0, 0, text, "rg-caption")], drawing.width(text, 12) + 24
    found = {signal.dtype or "" for source in cards.values() for signal in source.signals.values()}
    for dtype in (name for name in looks.PINS if name in found):
        parts += [drawing.glyph(looks.pin_look(dtype), x, -4), drawing.text(x + 9, 0, dtype, "rg-caption")]
        x += drawing.width(dtype, 12) + 26
    return parts, x


def _told(page: "Page", results: Mapping[str, BlockResult]) -> str:
    """The page in words, for those who do not see it."""
    lines = []
    for id in page.order()[:MOST_TOLD]:
        block = page[id]
        fed = ", ".join(f"{pin} from {wire}" for pin, wire in block.wires())
        gives = ", ".join(f"{pin} {signal}" for pin, signal in page.inferred(id).outputs.items())
        state = f"; {results[id].reason}" if id in results else ""
        lines.append(f"{id} ({block.op}){f': {fed}' if fed else ''}{f'; gives {gives}' if gives else ''}{state}.")
    lines += [f"Note: {note.text}" for note in page.notes[:MOST_TOLD]]
    if len(page) > MOST_TOLD:
        lines.append(f"And {len(page) - MOST_TOLD} more blocks.")
    return " ".join(lines) or "An empty page."


# The page inside


def embeddable(page: "Page") -> str | None:
    """The text of the page file, of characters that any picture can hold; None if there is none, or it is too large."""
    try:
        text = page.to_json()
    except PageError:
        return None  # it cannot be saved either, and `save` will say why
    text = NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text if len(text) <= MOST_BYTES // 4 else None


def _embedded(page: "Page") -> str:
    text = embeddable(page)
    if text is None:
        return ""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<metadata id="{PAGE_ID}">{text}</metadata>'


def page_in_svg(text: str) -> str | None:
    """The page file that a picture holds; None if it holds none.

    Raises
    ------
    FileError
        It is no whole SVG, too large, or defines entities, which a picture of a page never does.
    """
    if len(text) > MOST_BYTES:
        raise FileError(f"the picture is larger than {MOST_BYTES >> 20} MB, too large for one of a page.")
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    parser.buffer_text = True
    try:
        parser.Parse(text.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        raise FileError(f"the picture is incomplete: {error}.") from error
    return "".join(reader.found) if reader.has_page else None


class _Reader:
    """Reads what stands in the element that holds the page, and nothing else."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.has_page = False
        self.is_inside = False
        self.depth = 0

    def refuse(self, *declared: object) -> None:
        raise FileError("the picture has a document type declaration, which pictures of pages never have.")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.depth += 1
        if self.depth == 1 and name.rpartition(":")[2] != "svg":
            raise FileError(f"the file is not SVG: it begins with {name[:40]}.")
        if name.rpartition(":")[2] == "metadata" and attributes.get("id") == PAGE_ID and not self.has_page:
            self.has_page = self.is_inside = True

    def end(self, name: str) -> None:
        self.depth -= 1
        if name.rpartition(":")[2] == "metadata":
            self.is_inside = False

    def data(self, text: str) -> None:
        if self.is_inside:
            self.found.append(text)


def size_of(picture: str) -> tuple[float, float]:
    """The width and height of a picture that `to_svg` has made."""
    found = re.match(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"', picture)
    assert found is not None
    return float(found[1]), float(found[2])
