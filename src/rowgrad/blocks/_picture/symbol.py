"""The symbol of an operator: its block alone, with the type and shape of each pin beside it. The reference shows it."""

from rowgrad._ops import Pin
from rowgrad.blocks import _layout as layout
from rowgrad.blocks._examples import worked_example
from rowgrad.blocks._picture import drawing
from rowgrad.blocks._picture.cards import LABEL, card
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.svg import STYLE

MARGIN = 12
GAP = 12  # between a pin and its label


def symbol(operator: str) -> str:
    """The symbol of an operator or block of the catalogue as SVG."""
    declared = BLOCKS[operator]
    page = worked_example(operator)
    drawn = card(page, page[operator], None)
    left = [_label(pin) for pin in declared.inputs]
    right = [_label(pin) for pin in declared.outputs]
    before, after = (GAP + max((drawing.width(text, LABEL) for text in side), default=-GAP) for side in (left, right))
    width = before + drawn.width + after + 2 * MARGIN
    height = drawn.height + 2 * MARGIN
    labels = [
        drawing.text(x, layout.pin_y(place) + 3.5, text, "rg-label", anchor)
        for side, x, anchor in ((left, -GAP, "end"), (right, drawn.width + GAP, ""))
        for place, text in enumerate(side)
    ]
    name = drawing.escape(f"{operator}: {_names(declared.inputs)} in, {_names(declared.outputs)} out")
    size = f'width="{drawing.number(width)}" height="{drawing.number(height)}"'
    view = f'viewBox="0 0 {drawing.number(width)} {drawing.number(height)}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rowgrad" {size} {view} role="img" aria-labelledby="rg-title">',
        f'<title id="rg-title">{name}</title>',
        f"<style>{STYLE}</style>",
        drawing.at(MARGIN + before, MARGIN, [*drawn.parts, *labels]),
        "</svg>\n",
    ])  # fmt: skip


def _label(pin: Pin) -> str:
    return f"{'list of ' if pin.many else ''}{pin.dtype} {pin.shape}"


def _names(pins: tuple[Pin, ...]) -> str:
    return ", ".join(pin.name for pin in pins) or "nothing"
