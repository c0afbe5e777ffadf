"""Where blocks stand: columns from left to right, each block right of what feeds it.

Sizes are those of the picture (`svg`) and of the studio.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rowgrad.blocks.model import Block

if TYPE_CHECKING:
    from rowgrad.blocks.page import Page

MARGIN = 40
WIDTH = 220
COLUMN = 320  # from the left edge of a block to that of the next
HEAD, LINE, FOOT = 34, 22, 10
RESULT = 120  # room under a block for its results
GAP = 36


def height(block: Block) -> int:
    """The height of a block without its results."""
    operator = block.operator
    lines = max(len(operator.inputs) + len(operator.attributes), len(operator.outputs), 1)
    return HEAD + LINE * lines + FOOT


def room(block: Block) -> int:
    """The height that a block takes up, with its results and the gap to the next."""
    return height(block) + RESULT * bool(block.operator.outputs) + GAP


class Columns:
    """The next free place in each column."""

    def __init__(self, top: float = MARGIN) -> None:
        self.top = top
        self.free: dict[int, float] = {}

    def place(self, column: int, block: Block) -> tuple[float, float]:
        """A place for `block`, which is then taken."""
        y = self.free.get(column, self.top)
        self.free[column] = y + room(block)
        return (MARGIN + column * COLUMN, y)

    def occupy(self, block: Block) -> None:
        """Count the place where `block` stands as taken."""
        x, y = block.at
        column = column_of(x)
        self.free[column] = max(self.free.get(column, self.top), y + room(block))


def column_of(x: float) -> int:
    """The column in which something at `x` stands."""
    return round((x - MARGIN) / COLUMN)


def arranged(page: "Page", ids: Iterable[str] | None = None) -> dict[str, tuple[float, float]]:
    """Places for the blocks `ids` (all, if None), below those that stay, each right of what feeds it."""
    chosen = list(page.order()) if ids is None else [id for id in page.order() if id in set(ids)]
    stay = [block for block in page if block.id not in set(chosen)]
    columns = Columns(max((block.at[1] + room(block) for block in stay), default=MARGIN))
    depth: dict[str, int] = {}
    for id in chosen:
        feeding = [depth[wire.block] + 1 for _, wire in page[id].wires() if wire.block in depth]
        depth[id] = max(feeding, default=0)
    ready = _close_to_use(page, chosen, depth)
    return {id: columns.place(ready[id], page[id]) for id in chosen}


def _close_to_use(page: "Page", chosen: list[str], depth: Mapping[str, int]) -> dict[str, int]:
    """Blocks without inputs move right, next to the first that uses them: wires are shorter so."""
    first_use: dict[str, int] = {}
    for id in chosen:
        for _, wire in page[id].wires():
            first_use[wire.block] = min(first_use.get(wire.block, depth[id]), depth[id])
    return {id: max(first_use.get(id, 1) - 1, 0) if depth[id] == 0 else depth[id] for id in chosen}
