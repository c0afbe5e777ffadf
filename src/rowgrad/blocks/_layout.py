"""Where blocks stand: columns from left to right, each block right of what feeds it.

`Columns` finds a place for one block more. `arranged` lays out a page anew, or some blocks below the others: what is
wired together stays together, wires cross as little as a few sweeps can bring about, and run as level as may be.
Sizes are those of the picture (`svg`) and of the studio.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rowgrad.blocks.model import Block

if TYPE_CHECKING:
    from rowgrad.blocks._looking import Looking

MARGIN = 40
NARROWEST, WIDEST = 180, 320  # a block without its results
COLUMN = 340  # from the left edge of a block to that of the next; a wire and its label fit between
HEAD, LINE, FOOT = 40, 22, 10
RESULT = 120  # room under a block for its results
GAP = 36
BAND = 60  # between blocks and those that were added below them
SWEEPS = 6


def height(block: Block) -> int:
    """The height of a block without its results."""
    operator = block.operator
    lines = max(len(operator.inputs), len(operator.outputs)) + len(block.attributes)
    return HEAD + LINE * max(lines, 1) + FOOT


def room(block: Block) -> int:
    """The height that a block takes up, with its results and the gap to the next."""
    return height(block) + RESULT * bool(block.operator.outputs) + GAP


def pin_y(position: int) -> float:
    """How far below the top of a block its pins are."""
    return HEAD + LINE * (position + 0.5) + 4


class Columns:
    """The next free place in each column."""

    def __init__(self, top: float = MARGIN) -> None:
        self.top = top
        self.free: dict[int, float] = {}

    def copy(self) -> "Columns":
        """The same, to go on from separately."""
        other = Columns(self.top)
        other.free = dict(self.free)
        return other

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


def arranged(page: "Looking", ids: Iterable[str] | None = None) -> dict[str, tuple[float, float]]:
    """Places for the blocks `ids` (all, if None), below those that stay, each right of what feeds it."""
    wanted = None if ids is None else set(ids)
    chosen = [id for id in page.order() if wanted is None or id in wanted]
    stay = [block for block in page if wanted is not None and block.id not in wanted]
    top = max((block.at[1] + room(block) - GAP + BAND for block in stay), default=MARGIN)
    islands = [_Island(page, island) for island in _islands(page, chosen)]
    return _packed(islands, top)


def _islands(page: "Looking", chosen: list[str]) -> list[list[str]]:
    """The blocks in groups that no wire joins, in the order of their first."""
    leader = {id: id for id in chosen}

    def find(id: str) -> str:
        while leader[id] != id:
            leader[id] = leader[leader[id]]
            id = leader[id]
        return id

    for id in chosen:
        for _, wire in page[id].wires():
            if wire.block in leader:
                leader[find(id)] = find(wire.block)
    groups: dict[str, list[str]] = defaultdict(list)
    for id in chosen:
        groups[find(id)].append(id)
    return list(groups.values())


def _packed(islands: "Sequence[_Island]", top: float) -> dict[str, tuple[float, float]]:
    """Islands side by side and below each other, so that the page is somewhat wider than high."""
    area = sum(island.columns * COLUMN * island.height for island in islands)
    most = max([round((1.6 * area) ** 0.5 / COLUMN), *(island.columns for island in islands)], default=0)
    places: dict[str, tuple[float, float]] = {}
    column, below = 0, top
    for island in islands:
        if column + island.columns > most:
            column, top = 0, below
        for id, (at, y) in island.places.items():
            places[id] = (MARGIN + (column + at) * COLUMN, top + y)
        column += island.columns
        below = max(below, top + island.height)
    return places


class _Island:
    """Blocks that wires join: in which column each stands, and how far down."""

    def __init__(self, page: "Looking", ids: list[str]) -> None:
        self.rooms = {id: float(room(page[id])) for id in ids}
        self.before: dict[str, list[tuple[str, float]]] = {id: [] for id in ids}
        self.after: dict[str, list[tuple[str, float]]] = {id: [] for id in ids}
        for id in ids:
            block = page[id]
            entries = {pin.name: pin_y(i) for i, pin in enumerate(block.operator.inputs)}
            for pin, wire in block.wires():
                if wire.block in self.rooms:
                    exits = [output.name for output in page[wire.block].operator.outputs]
                    # How much further down than the feeding block this one stands if the wire is level.
                    level = pin_y(exits.index(wire.pin)) - entries[pin]
                    self.before[id].append((wire.block, level))
                    self.after[wire.block].append((id, -level))
        depth = self._depths(ids)
        self.columns = max(depth.values()) + 1
        self.y = dict.fromkeys(ids, 0.0)
        self._sweep(depth)
        first = min(self.y.values())
        self.places = {id: (depth[id], float(int(self.y[id] - first))) for id in ids}
        self.height = max(self.places[id][1] + self.rooms[id] for id in ids)

    def _depths(self, ids: list[str]) -> dict[str, int]:
        """Columns: each block right of all that feed it, and next to its first use where no more wires get longer."""
        depth: dict[str, int] = {}
        for id in ids:
            depth[id] = max((depth[other] + 1 for other, _ in self.before[id]), default=0)
        for id in reversed(ids):
            if self.after[id] and len(self.before[id]) <= len(self.after[id]):
                depth[id] = min(depth[other] for other, _ in self.after[id]) - 1
        return depth

    def _sweep(self, depth: Mapping[str, int]) -> None:
        """Bring each column in the order of its neighbours, to and fro; then let wires be level."""
        columns: list[list[str]] = [[] for _ in range(self.columns)]
        for id, place in depth.items():
            columns[place].append(id)
        for column in columns:
            self._settle(column, dict.fromkeys(column, 0.0))
        for sweep in range(SWEEPS):
            is_last = sweep >= SWEEPS - 2  # the order is found; look both ways
            for column in columns if sweep % 2 == 0 else reversed(columns):
                wished = {}
                for id in column:
                    near = [*self.before[id], *self.after[id]] if is_last else (self.before, self.after)[sweep % 2][id]
                    total = sum(self.y[other] + level for other, level in near)
                    wished[id] = total / len(near) if near else self.y[id]
                if not is_last:
                    column.sort(key=wished.__getitem__)
                self._settle(column, wished)

    def _settle(self, column: list[str], wished: Mapping[str, float]) -> None:
        """Put the blocks of a column as near as can be to where they wish to be, in their order, none on another.

        Blocks that would overlap become one heap, which stands where its members wish on average.
        """
        heaps: list[tuple[float, int, float, int]] = []  # the sum of wishes, of how many, the height, the first
        for position, id in enumerate(column):
            total, count, high, first = wished[id], 1, self.rooms[id], position
            while heaps and heaps[-1][0] / heaps[-1][1] + heaps[-1][2] > total / count:
                above = heaps.pop()
                total, count, high, first = (
                    above[0] + total - count * above[2],
                    above[1] + count,
                    above[2] + high,
                    above[3],
                )
            heaps.append((total, count, high, first))
        for position, (total, count, _, first) in enumerate(heaps):
            last = heaps[position + 1][3] if position + 1 < len(heaps) else len(column)
            y = float(round(total / count))
            for id in column[first:last]:
                self.y[id] = y
                y += self.rooms[id]
