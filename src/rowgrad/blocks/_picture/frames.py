"""Groups in a picture: a frame around an open one, and the results of a collapsed one on its card."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rowgrad.blocks import looks
from rowgrad.blocks._picture import drawing
from rowgrad.blocks._picture.cards import Card, Piece
from rowgrad.blocks.groups import INSTANCE, Group, collapsed, is_in, pins
from rowgrad.blocks.results import DONE, FAILED, SKIPPED, WAITING, BlockResult

if TYPE_CHECKING:
    from rowgrad.blocks.page import Page

PAD, HEAD = 18, 24


def group_frames(page: "Page", cards: Mapping[str, Card]) -> list[Piece]:
    """The frames of the groups that are open, outer ones first."""
    deepest = max((name.count("/") for name in page.groups), default=0)
    frames = []
    for name, group in page.groups.items():
        inside = [card for id, card in cards.items() if is_in(page[id].group, name)]
        if not inside:
            continue
        around = deepest - name.count("/")  # outer frames stand around inner ones, with room for their names
        room = PAD + 12 * around
        x = min(card.x for card in inside) - room
        y = min(card.y for card in inside) - PAD - HEAD * (1 + around)
        wide = max(card.x + card.reach for card in inside) + room - x
        high = max(card.bottom for card in inside) + room - y
        title = drawing.shorten(name.rpartition("/")[2], wide - 24, 12, bold=True)
        told = f"group {name}" + _how(group)
        frame = Piece((x, y), wide, wide, high, [
            f'<g class="rg-frame"><title>{drawing.escape(told)}</title>',
            drawing.box(0, 0, wide, high, fill=looks.BOX, stroke=looks.FAINT, radius=12, more=' fill-opacity="0.55"'),
            drawing.text(12, 17, title, "rg-group"),
            "</g>",
        ])  # fmt: skip
        frame.x, frame.y = x, y
        frames.append(frame)
    return frames


def _how(group: Group) -> str:
    """How a group came about, after its name."""
    if group.recipe is None:
        return ""
    return f", an instance of {group.recipe.y.block}" if group.recipe.kind == INSTANCE else ", derived"


def group_results(page: "Page", results: Mapping[str, BlockResult]) -> dict[str, BlockResult]:
    """What is to be said on the cards of collapsed groups: what leaves them, or what went wrong inside."""
    found: dict[str, BlockResult] = {}
    for name in collapsed(page) if results else ():
        problem = page.groups[name].problem
        if problem is not None:
            found[name] = BlockResult(name, "Group", FAILED, error=problem)
            continue
        inside = [results[id] for id in page.members(name) if id in results]
        worst = next((r for status in (FAILED, SKIPPED, WAITING) for r in inside if r.status == status), None)
        if worst is not None:
            found[name] = BlockResult(name, "Group", worst.status, error=worst.error, needs=worst.needs)
        else:
            outputs = {pin.name: results[pin.wire.block].outputs[pin.wire.pin] for pin in pins(page, name).outputs}
            found[name] = BlockResult(name, "Group", DONE, outputs, stale=any(result.stale for result in inside))
    return found
