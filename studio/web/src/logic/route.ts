// Wires that would run under cards are led around them: out, along a free lane above or below, and in. Nothing is drawn here.

import type { Box } from "./arrange";

export interface Obstacle extends Box {
  id: string;
}

interface Point {
  x: number;
  y: number;
}

const OUT = 18; // how far a wire goes from a pin before it may turn
const GAP = 12; // from a card to the lane beside it
const ROUND = 9;
const NEAR = 3; // a wire this close to a card runs under it

const isIn = (box: Box, { x, y }: Point, gap = NEAR): boolean => x > box.x - gap && x < box.x + box.width + gap && y > box.y - gap && y < box.y + box.height + gap;

/** Whether a level or upright stretch touches a card. */
function touches(box: Box, from: Point, to: Point): boolean {
  const [left, right] = [Math.min(from.x, to.x), Math.max(from.x, to.x)];
  const [top, bottom] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
  return right > box.x - NEAR && left < box.x + box.width + NEAR && bottom > box.y - NEAR && top < box.y + box.height + NEAR;
}

/** The curve that a wire has by itself: level to `start`, then with a reach to the target. */
function onCurve(start: Point, to: Point, reach: number, share: number): Point {
  const [a, b, c, d] = [(1 - share) ** 3, 3 * (1 - share) ** 2 * share, 3 * (1 - share) * share ** 2, share ** 3];
  return { x: a * start.x + b * (start.x + reach) + c * (to.x - reach) + d * to.x, y: a * start.y + b * start.y + c * to.y + d * to.y };
}

/** Corners of a way around the cards; null where the curve is free, or no way is. */
export function around(from: Point, start: Point, to: Point, reach: number, boxes: readonly Obstacle[], ends: readonly string[]): Point[] | null {
  const others = boxes.filter((box) => !ends.includes(box.id));
  const samples = Array.from({ length: 23 }, (_, i) => onCurve(start, to, reach, (i + 1) / 24));
  const hits = (box: Obstacle): boolean => {
    if (!ends.includes(box.id)) return touches(box, from, start) || samples.some((point) => isIn(box, point));
    return samples.slice(2, -2).some((point) => isIn(box, point, -1)); // a wire that swings back may run under its own cards
  };
  if (!boxes.some(hits)) return null;
  // Behind its label, unless a card stands in the way of that already.
  const outX = others.some((box) => touches(box, from, { x: Math.max(start.x, from.x + OUT), y: from.y })) ? from.x + OUT : Math.max(start.x, from.x + OUT);
  const inX = to.x - OUT;
  const lanes = new Set<number>([(from.y + to.y) / 2]);
  for (const box of boxes) {
    if (box.x > Math.max(outX, inX) + 40 || box.x + box.width < Math.min(outX, inX) - 40) continue;
    lanes.add(box.y - GAP);
    lanes.add(box.y + box.height + GAP);
  }
  let best: { corners: Point[]; cost: number } | null = null;
  const consider = (corners: Point[]): void => {
    const cost = corners.reduce((sum, corner, i) => (i ? sum + Math.abs(corner.x - (corners[i - 1] as Point).x) + Math.abs(corner.y - (corners[i - 1] as Point).y) : 0), 0);
    if (best && cost >= best.cost) return;
    // The cards at both ends may be touched where the wire leaves and arrives, and nowhere else.
    const free = corners.every((corner, i) => {
      if (!i) return true;
      const before = corners[i - 1] as Point;
      const outer = i === 1 || i === corners.length - 1;
      return !(outer ? others : boxes).some((box) => touches(box, before, corner));
    });
    if (free) best = { corners, cost };
  };
  for (const lane of lanes) consider([from, { x: outX, y: from.y }, { x: outX, y: lane }, { x: inX, y: lane }, { x: inX, y: to.y }, to]);
  if (outX < inX) {
    // One upright stretch, in a gap between columns.
    for (const box of boxes) for (const x of [box.x - OUT, box.x + box.width + OUT]) if (x > outX && x < inX) consider([from, { x, y: from.y }, { x, y: to.y }, to]);
  }
  return (best as { corners: Point[] } | null)?.corners ?? null;
}

/** A path through corners, which are rounded. */
export function pathOf(corners: readonly Point[]): string {
  const turns = corners.filter((corner, i) => i === 0 || corner.x !== (corners[i - 1] as Point).x || corner.y !== (corners[i - 1] as Point).y);
  const [first] = turns;
  if (!first) return "";
  let path = `M${first.x} ${first.y}`;
  for (let i = 1; i < turns.length; i++) {
    const [before, corner, after] = [turns[i - 1] as Point, turns[i] as Point, turns[i + 1]];
    if (!after) {
      path += `L${corner.x} ${corner.y}`;
      break;
    }
    const cut = (other: Point): Point => {
      const far = Math.hypot(other.x - corner.x, other.y - corner.y) || 1;
      const by = Math.min(ROUND, far / 2) / far;
      return { x: corner.x + (other.x - corner.x) * by, y: corner.y + (other.y - corner.y) * by };
    };
    const [into, out] = [cut(before), cut(after)];
    path += `L${into.x} ${into.y}Q${corner.x} ${corner.y} ${out.x} ${out.y}`;
  }
  return path;
}
