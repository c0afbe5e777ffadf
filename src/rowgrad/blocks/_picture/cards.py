"""Blocks as cards: header, pins with what is typed into them, attributes, and results below; and notes.

A card knows its size, where its pins are, and what is written on the wires that leave it; `svg` puts it in its place.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad.blocks import _layout as layout
from rowgrad.blocks import looks, values
from rowgrad.blocks._picture import drawing, panels
from rowgrad.blocks._picture.drawing import Panel, quoted
from rowgrad.blocks._sources import constant
from rowgrad.blocks.inference import Signal
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.model import Block, Wire
from rowgrad.blocks.results import DONE, FAILED, SKIPPED, BlockResult

if TYPE_CHECKING:
    from rowgrad.blocks.page import Note, Page

PAD = 13
ID, OP, NAME, VALUE, LABEL = 13, 10, 11.5, 10.5, 10
LONGEST_VALUE = 22  # characters of a literal
WIDEST_LABEL = 150
LINES_OF_ERROR = 8
NOTE = 260  # the longest line of a note


@dataclass
class Piece:
    """What has a place in a picture; x and y are set when all are placed."""

    at: tuple[float, float]  # on the page
    core: float  # the width without results
    width: float
    height: float
    parts: list[str]
    x: float = field(default=0, init=False)
    y: float = field(default=0, init=False)

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height

    @property
    def reach(self) -> float:
        """How wide it is with what is written beside it."""
        return self.width

    @property
    def feeding(self) -> list[str]:
        """The blocks from which wires arrive."""
        return []


@dataclass
class Card(Piece):
    """A block in a picture."""

    block: Block
    pins_in: dict[str, float]  # how far below the top
    pins_out: dict[str, float]
    labels: dict[str, str]
    signals: dict[str, Signal]

    @property
    def reach(self) -> float:
        """How wide it is with the labels of its outputs."""
        return self.width + max((label_width(label) for label in self.labels.values()), default=0)

    @property
    def feeding(self) -> list[str]:
        """The blocks from which wires arrive."""
        return [wire.block for _, wire in self.block.wires()]


def label_width(label: str) -> float:
    """The room that a label takes on its wire, from the pin to where the wire may bend."""
    return drawing.width(label, LABEL) + 24


def card(page: "Page", block: Block, result: BlockResult | None) -> Card:
    """`block`, and its results if there are any."""
    outcome = _outcome(block, result)
    rows = _Rows(page, block)
    name_width = drawing.width(block.id, ID, bold=True) + 2 * PAD + (44 if result and _is_stale(result) else 0)
    core = max(layout.NARROWEST, min(layout.WIDEST, max(name_width, rows.width)))
    wide = float(round(max(core, outcome.width + 2 * PAD) + 0.5))
    high = layout.height(block) + (outcome.height + 18 if outcome.parts else 0)
    tint = looks.tint(block.operator.family)
    state = result.status if result else ""
    parts = [*_frame(block, wide, high, tint, result), *rows.parts(wide)]
    if outcome.parts:
        y = layout.height(block)
        parts.append(f'<path d="M0 {y}h{drawing.number(wide)}" stroke="{looks.FAINT}"/>')
        parts.append(drawing.at(PAD, y + 9, outcome.parts))
    label = f"{block.id} ({block.op})" + (f", {result.reason}" if result and state != DONE else "")
    opening = f'<g class="rg-block{f" rg-{state}" if state else ""}" id={quoted(f"block-{block.id}")}>'
    parts = [opening, f"<title>{drawing.escape(label)}</title>", *parts, "</g>"]
    signals = dict(page.inferred(block.id).outputs)
    labels = {pin: signal_label(signal) for pin, signal in signals.items()}
    pins_in = {pin.name: layout.pin_y(i) for i, pin in enumerate(block.operator.inputs)}
    pins_out = {pin.name: layout.pin_y(i) for i, pin in enumerate(block.operator.outputs)}
    return Card(block.at, core, wide, float(high), parts, block, pins_in, pins_out, labels, signals)


def note_piece(note: "Note") -> Piece:
    """A note, as a slip of paper."""
    lines = [panels.message(line, NOTE, 40, "rg-note") for line in note.text.splitlines()[:40]]
    text = drawing.stack(line if line.parts else Panel(0, panels.LINE, [""]) for line in lines)
    wide, high = float(round(text.width + 2 * PAD)), text.height + 16
    paper = drawing.box(0, 0, wide, high, fill=looks.NOTE, stroke=looks.NOTE_FRAME, radius=3)
    return Piece(note.at, wide, wide, high, ['<g class="rg-slip">', paper, drawing.at(PAD, 7, text.parts), "</g>"])


def signal_label(signal: Signal) -> str:
    """What is written on a wire: names of sizes without their block, and no more than fits."""
    if signal.shape is None:
        return str(signal)
    sizes = [size.rpartition(".")[2] if isinstance(size, str) else size for size in signal.shape]
    return drawing.shorten(str(signal._replace(shape=tuple(sizes))), WIDEST_LABEL, LABEL)


def _is_stale(result: BlockResult) -> bool:
    return result.stale and result.status == DONE


def _outcome(block: Block, result: BlockResult | None) -> Panel:
    """What is shown below the pins."""
    if result is None:
        return Panel(0, 0, [])
    if result.status == DONE:
        return drawing.stack([panels.of_output(pin, array) for pin, array in result.outputs.items()], gap=10)
    room = max(240.0, layout.NARROWEST - 2 * PAD)
    if result.status == FAILED and result.error is not None:
        said, pin = result.error.message, result.error.pin
        said = said if pin is None or said.startswith(pin) else f"{pin}: {said}"
        return panels.message(said, room, LINES_OF_ERROR, "rg-error")
    if result.status == SKIPPED:
        return panels.message(f"skipped: needs {result.needs}", room, 2, "rg-dim")
    return panels.message("not run yet", room, 1, "rg-dim")


def _frame(block: Block, wide: float, high: float, tint: looks.Tint, result: BlockResult | None) -> list[str]:
    """The card itself and its header."""
    frame, header, line = tint.frame, tint.header, ""
    if result and result.status == FAILED:
        frame, line = looks.ERROR, ' stroke-width="2.5"'
    elif result and result.status == SKIPPED:
        frame, header, line = looks.FAINT, looks.BOX, ""
    elif result and _is_stale(result):
        frame, line = looks.STALE, ' stroke-dasharray="5 3" stroke-width="1.5"'
    h = layout.HEAD - 4
    parts = [
        drawing.box(0, 0, wide, high, fill=looks.CARD, radius=8),
        f'<path d="M0 {h}V8a8 8 0 0 1 8 -8H{drawing.number(wide - 8)}a8 8 0 0 1 8 8V{h}z" fill="{header}"/>',
        drawing.box(0, 0, wide, high, fill="none", stroke=frame, radius=8, more=line),
    ]
    stale = result is not None and _is_stale(result)
    if stale:
        parts.append(drawing.text(wide - PAD, 15, "stale", "rg-stale", "end"))
    room = wide - 2 * PAD - (40 if stale else 0)
    name = drawing.shorten(block.id, room, ID, bold=True, middle=True)
    if block.id == block.op:
        return [*parts, drawing.text(PAD, h / 2 + 4.5, name, "rg-id")]
    return [*parts, drawing.text(PAD, 17, name, "rg-id"), drawing.text(PAD, 30, block.op, "rg-op")]


class _Rows:
    """The lines of a card: pins left and right, then attributes."""

    def __init__(self, page: "Page", block: Block) -> None:
        self.block = block
        self.inferred = page.inferred(block.id)
        self.missing = set(block.missing())
        self.given = {pin.name: self._typed_in(pin.name) for pin in block.operator.inputs}
        self.attributes = [(name, _attribute(block, name, value)) for name, value in block.attributes.items()]
        left = [
            drawing.width(pin.name, NAME) + self._value_width(self.given[pin.name]) for pin in block.operator.inputs
        ]
        right = [drawing.width(pin.name, NAME) for pin in block.operator.outputs]
        lines = max(len(left), len(right))
        both = [sum(side[i] if i < len(side) else 0 for side in (left, right)) for i in range(lines)]
        said = [
            drawing.width(f"{name} = ", NAME) + drawing.width(text, VALUE, mono=True) for name, text in self.attributes
        ]
        self.width = max([0, *(wide + 18 for wide in both), *said]) + 2 * PAD

    def _value_width(self, text: str) -> float:
        return drawing.width(text, VALUE, mono=True) + 16 if text else 0

    def _typed_in(self, pin: str, most: int = LONGEST_VALUE) -> str:
        """What is typed into a pin, in so many characters; empty where only wires arrive."""
        if pin in self.missing:
            return "missing"
        literals = [
            np.asarray(self.inferred.literals[pin, position])
            for position, source in enumerate(self.block.sources(pin))
            if not isinstance(source, Wire)
        ]
        if len(literals) == 1:
            return values.brief(literals[0], most)
        text = ", ".join(values.brief(literal, most) for literal in literals[:most])
        return text if len(text) <= most else f"{len(literals)} literals"

    def parts(self, wide: float) -> list[str]:
        """The lines, on a card so wide."""
        operator, parts = self.block.operator, []
        for i, pin in enumerate(operator.outputs):
            y = layout.pin_y(i)
            look = looks.pin_look(self.inferred.outputs[pin.name].dtype)
            parts.append(self._pin(pin.name, "output", drawing.glyph(look, wide, y),
                                   drawing.text(wide - PAD, y + 4, pin.name, "rg-pin", "end")))  # fmt: skip
        for i, pin in enumerate(operator.inputs):
            taken = drawing.width(operator.outputs[i].name, NAME) + 18 if i < len(operator.outputs) else 0
            parts.append(self._input(pin.name, layout.pin_y(i), wide - 2 * PAD - taken))
        y = layout.pin_y(max(len(operator.inputs), len(operator.outputs)))
        for name, text in self.attributes:
            start = drawing.width(f"{name} = ", NAME)
            text = drawing.shorten(text, wide - 2 * PAD - start, VALUE, mono=True)
            words = f'{drawing.escape(name)} = <tspan class="rg-num">{drawing.escape(text)}</tspan>'
            parts.append(f'<text x="{PAD}" y="{drawing.number(y + 4)}" class="rg-attr">{words}</text>')
            y += layout.LINE
        return parts

    def _input(self, pin: str, y: float, room: float) -> str:
        start = PAD + drawing.width(pin, NAME) + 4
        if pin in self.missing:
            look = looks.pin_look(None)
            said = drawing.text(start + 2, y + 4, "missing", "rg-missing")
            return self._pin(pin, "input, missing", drawing.glyph(look, 0, y, hollow=True, colour=looks.ERROR),
                             drawing.text(PAD, y + 4, pin, "rg-missing"), said)  # fmt: skip
        signal = self.inferred.inputs[pin]
        first = signal[0] if isinstance(signal, list) and signal else signal
        look = looks.pin_look(first.dtype if isinstance(first, Signal) else None)
        parts = [drawing.glyph(look, 0, y), drawing.text(PAD, y + 4, pin, "rg-pin")]
        if self.given[pin]:
            room -= start - PAD + 8
            text = self._typed_in(pin, min(LONGEST_VALUE, int(room / (VALUE * drawing.MONO_WIDTH))))
            text = drawing.shorten(text, room, VALUE, mono=True)
            size = drawing.width(text, VALUE, mono=True) + 8
            parts += [drawing.box(start, y - 8, size, 16, fill=looks.BOX, radius=3),
                      drawing.text(start + size / 2, y + 4, text, "rg-num", "middle")]  # fmt: skip
        return self._pin(pin, "input", *parts)

    def _pin(self, pin: str, kind: str, *parts: str) -> str:
        title = f"{pin} {kind} of {self.block.id}"
        return f'<g class="rg-{kind.split(",")[0]}"><title>{drawing.escape(title)}</title>{"".join(parts)}</g>'


def _attribute(block: Block, name: str, value: Any) -> str:
    if isinstance(value, Literal):
        held = constant(block)
        return values.brief(held, 2 * LONGEST_VALUE) if held is not None else ""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return values.element(value) if isinstance(value, int | float) else str(value)
