"""Cards and wires in their places, for a picture: the page itself is not changed.

Blocks stand where the page has them. Results make cards larger, so what is beside or below gives way, as if space were
put into the page: order and alignment stay. Wires that pass other cards go through the gaps between them.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from rowgrad.blocks._layout import GAP
from rowgrad.blocks._picture.cards import Card, Piece, label_width
from rowgrad.blocks._picture.drawing import number
from rowgrad.blocks.model import Wire

BEND = 44  # the least room between a label and the next column, for wires to bend in
BESIDE = 24
FARTHEST = 900  # empty stretches longer than this are cut
PIN = 5
CLEAR = 10  # between a card and a wire that passes it
LANE = 6  # between wires that run side by side
MOST_LANES = 40  # that are tried
MOST_LEVEL = 24  # columns that a wire may pass on one level
FARTHEST_LANE = 160  # how far a wire goes out of its way for that

Point = tuple[float, float]


class Way(NamedTuple):
    """The way of a wire: the data of a path, and what it stretches over."""

    path: str
    left: float
    top: float
    right: float
    bottom: float


def spread(pieces: Mapping[str, Piece]) -> None:
    """Give each piece its place, none on another."""
    for piece in pieces.values():
        piece.x, piece.y = (float(n) if math.isfinite(n) else 0.0 for n in piece.at)
    _spread_right(pieces)
    _spread_down(list(pieces.values()))


def _groups(pieces: Iterable[Piece], axis: str) -> list[list[Piece]]:
    """Pieces by where they begin, those that are level together."""
    groups: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: getattr(piece, axis)):  # stable: equal places keep the page's order
        if groups and getattr(piece, axis) - getattr(groups[-1][0], axis) < 8:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _spread_right(pieces: Mapping[str, Piece]) -> None:
    """What was beside a piece stays beside it, with room for the labels of its wires between."""
    count, placed = len(pieces), 0
    x, core, right, reach, top, bottom = (np.zeros(count) for _ in range(6))
    page_x = {id: piece.x for id, piece in pieces.items()}
    shift, furthest = 0.0, None
    for group in _groups(pieces.values(), "x"):
        left = min(piece.x for piece in group)
        beside = x[:placed] + core[:placed] <= left
        needed = -np.inf
        if beside.any():
            needed = right[:placed][beside].max() + BESIDE
        for piece in group:
            near = beside & (top[:placed] < piece.y + piece.height + GAP) & (bottom[:placed] + GAP > piece.y)
            if near.any():
                needed = max(needed, reach[:placed][near].max() + BEND)
            for id in piece.feeding:
                source = pieces[id]
                if page_x[id] + source.core <= left:
                    needed = max(needed, source.x + source.reach + BEND)
        if furthest is not None:
            shift = min(shift, furthest + FARTHEST - left)
        shift = max(shift, needed - left)
        for piece in group:
            x[placed], core[placed], top[placed], bottom[placed] = piece.x, piece.core, piece.y, piece.bottom
            piece.x += shift
            right[placed], reach[placed] = piece.right, piece.x + piece.reach
            furthest = max(piece.right, furthest if furthest is not None else piece.right)
            placed += 1


def _spread_down(pieces: list[Piece]) -> None:
    """What would lie on a card or its labels moves below it, and all that is further down with it."""
    placed = 0
    left, right, bottom = (np.zeros(len(pieces)) for _ in range(3))
    shift, furthest = 0.0, None
    for group in _groups(pieces, "y"):
        if furthest is not None:
            shift = min(shift, furthest + FARTHEST - group[0].y)
        before = placed
        for is_placing in (False, True):
            for piece in group:
                above = (left[:placed] < piece.x + piece.reach + BESIDE / 2) & (right[:placed] + BESIDE / 2 > piece.x)
                if above.any():
                    shift = max(shift, bottom[:placed][above].max() + GAP - piece.y)
                if is_placing:
                    piece.y += shift
                    left[placed], right[placed], bottom[placed] = piece.x, piece.x + piece.reach, piece.bottom
                    placed += 1
        furthest = max(bottom[before:placed].max(), furthest if furthest is not None else -np.inf)


class _Column:
    """Cards that stand above each other, and the gaps between them, which wires pass through."""

    def __init__(self, cards: list[Card]) -> None:
        self.left = min(card.x for card in cards)
        self.right = max(card.right for card in cards)
        self.used: dict[float, Wire] = {}
        taken: list[list[float]] = []
        for card in sorted(cards, key=lambda card: card.y):
            if taken and card.y - CLEAR < taken[-1][1] + CLEAR:
                taken[-1][1] = max(taken[-1][1], card.bottom + CLEAR)
            else:
                taken.append([card.y - CLEAR, card.bottom + CLEAR])
        edges = [-math.inf, *(edge for pair in taken for edge in pair), math.inf]
        self.gaps = list(zip(edges[::2], edges[1::2], strict=True))
        self.starts = [low for low, _ in self.gaps]

    def near(self, wish: float) -> tuple[float, float]:
        """The gap that is nearest to `wish`."""
        position = bisect_right(self.starts, wish) - 1
        return min(self.gaps[max(position, 0) : position + 2], key=lambda gap: _distance(gap, wish))

    def is_free(self, y: float, wire: Wire) -> bool:
        """Whether no other wire runs there."""
        return all(abs(y - taken) >= LANE - 1 or other == wire for taken, other in self.used.items())


def _distance(gap: tuple[float, float], y: float) -> float:
    return max(gap[0] - y, y - gap[1], 0.0)


class Routes:
    """The ways of all wires among cards that have their places."""

    def __init__(self, cards: Mapping[str, Card]) -> None:
        self.cards = cards
        self.column_of: dict[str, int] = {}
        members: list[list[Card]] = []
        right = -math.inf
        for card in sorted(cards.values(), key=lambda card: card.x):
            if card.x >= right:
                members.append([])
            members[-1].append(card)
            right = max(right, card.right)
            self.column_of[card.block.id] = len(members) - 1
        self.columns = [_Column(group) for group in members]
        self.turns = 0
        self.buses: dict[Wire, float] = {}

    def way(self, wire: Wire, target: str, pin: str) -> Way:
        """The way of a wire to an input."""
        source, card = self.cards[wire.block], self.cards[target]
        start = (source.right, source.y + source.pins_out[wire.pin])
        end = (card.x - PIN, card.y + card.pins_in[pin])
        first, last = self.column_of[wire.block], self.column_of[target]
        bend = start[0] + label_width(source.labels[wire.pin])
        if last < first or (last == first and end[0] < bend + BEND / 2):
            return self._back(wire, start, bend, end, card, range(first, last - 1, -1))
        if last > first:
            bend = max(bend, self.columns[first].right + 4)
            bend = max(min(bend, self.columns[first + 1].left - BEND / 2), start[0])
        between = range(first + 1, last)
        points = [start, (bend, start[1])]
        for index, lane in zip(between, self._lanes(wire, between, start[1], end[1]), strict=True):
            points += [(self.columns[index].left - 8, lane), (self.columns[index].right + 8, lane)]
        if last > first:
            points.append((min(end[0], self.columns[last].left - PIN), end[1]))
        return Way(_curve([*points, end]), *_bounds(points))

    def _lanes(self, wire: Wire, passing: range, begin: float, end: float) -> list[float]:
        """Where to pass each column: on one level, if a gap through all is not far off; else one by one."""
        columns = [self.columns[index] for index in passing]
        if not columns:
            return []
        if len(columns) > MOST_LEVEL:
            return [self._bus(wire)] * len(columns)
        lanes: list[float] = []
        level = self._level(columns, begin, end)
        for passed, column in enumerate(columns):
            y = lanes[-1] if lanes else begin
            wish = level if level is not None else y + (end - y) * 0.4 * (passed + 1) / len(columns)
            gap = column.near(wish)
            lanes.append(min(max(wish, gap[0]), gap[1]))
        # Wires that run side by side keep apart, where there is room; those of one output run together.
        runs = [list(run) for _, run in groupby(range(len(lanes)), key=lambda i: lanes[i])]
        for run in runs:
            here = [columns[i] for i in run]
            y = lanes[run[0]]
            gaps = [column.near(y) for column in here]
            low, high = max(gap[0] for gap in gaps), min(gap[1] for gap in gaps)
            for step in range(MOST_LANES):
                beside = y + (step + 1) // 2 * LANE * (1 if step % 2 else -1)
                if low <= beside <= high and all(column.is_free(beside, wire) for column in here):
                    y = beside
                    break
            for i in run:
                lanes[i] = y
                columns[i].used[y] = wire
        return lanes

    def _bus(self, wire: Wire) -> float:
        """A height below everything, for wires that go very far."""
        bottom = max(card.bottom for card in self.cards.values()) if not self.buses else 0.0
        return self.buses.setdefault(wire, min(self.buses.values(), default=bottom + CLEAR) + len(self.buses) * LANE)

    def _level(self, columns: list[_Column], begin: float, end: float) -> float | None:
        """A height on which all columns can be passed, near both ends."""
        free = [(-math.inf, math.inf)]
        for column in columns:
            free = [(max(low, other[0]), min(high, other[1])) for low, high in free for other in column.gaps
                    if max(low, other[0]) <= min(high, other[1])]  # fmt: skip
        low, high = min(begin, end), max(begin, end)
        found = []
        for gap in free:
            # Best is between both ends, nearest to the beginning; outside, the detour counts twice.
            y = min(max(begin, gap[0]), gap[1])
            found.append((abs(y - begin) + abs(y - end), abs(y - begin), y))
        detour, _, y = min(found)
        return y if detour <= high - low + 2 * FARTHEST_LANE else None

    def _back(self, wire: Wire, start: Point, bend: float, end: Point, target: Card, passing: range) -> Way:
        """From right to left: around, through the gaps next to the target, and around again."""
        wish = target.y - GAP / 2 if start[1] < end[1] else target.bottom + GAP / 2
        lanes = self._lanes(wire, passing, wish, wish)
        swing = 26.0 + self.turns % 4 * 5
        self.turns += 1
        turn = max(bend, self.columns[passing[0]].right + 4)
        parts = [f"M{_at(start)}H{number(turn)}"]
        parts.append(f"C{_at((turn + swing, start[1]), (turn + swing, lanes[0]), (turn, lanes[0]))}")
        for (index, lane), (after, following) in pairwise(zip(passing, lanes, strict=True)):
            x, y = self.columns[index].left - 8, self.columns[after].right + 8
            if lane != following:
                parts.append(f"H{number(x)}C{_at(((x + y) / 2, lane), ((x + y) / 2, following), (y, following))}")
        x = min(end[0], self.columns[passing[-1]].left - PIN) - 8
        parts.append(f"H{number(x)}C{_at((x - swing, lanes[-1]), (x - swing, end[1]), (x, end[1]))}H{number(end[0])}")
        return Way("".join(parts), *_bounds([start, end, (turn + swing, start[1]), (x - swing, end[1]),
                                             *((x, lane) for lane in lanes)]))  # fmt: skip


def _bounds(points: list[Point]) -> tuple[float, float, float, float]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs), max(ys)


def _at(*points: Point) -> str:
    return " ".join(f"{number(x)} {number(y)}" for x, y in points)


def _curve(points: list[Point]) -> str:
    """Level at every point; straight where two points are level."""
    path = f"M{_at(points[0])}"
    turning = [point for before, point, after in zip(points, points[1:], points[2:], strict=False)
               if not before[1] == point[1] == after[1]]  # fmt: skip
    for (x1, y1), (x2, y2) in pairwise([points[0], *turning, points[-1]]):
        if abs(y1 - y2) < 0.05:
            path += f"H{number(x2)}" if x1 != x2 else ""
        else:
            middle = max((x2 - x1) / 2, 16)
            path += f"C{_at((x1 + middle, y1), (x2 - middle, y2), (x2, y2))}"
    return path
