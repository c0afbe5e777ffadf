// Where blocks stand: the grid, lining up, free places for new ones. Sizes are those of the cards.

export const GRID = 10;
export const CARD = 250;

export type Place = [number, number];
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The box around boxes. */
export function around(boxes: Box[]): Box {
  const [x, y] = [Math.min(...boxes.map((box) => box.x)), Math.min(...boxes.map((box) => box.y))];
  return { x, y, width: Math.max(...boxes.map((box) => box.x + box.width)) - x, height: Math.max(...boxes.map((box) => box.y + box.height)) - y };
}

export const snapped = (value: number): number => Math.round(value / GRID) * GRID;

/** Lined up at their left or top edges; only those that move. */
export function aligned(places: Record<string, Place>, side: "left" | "top"): Record<string, Place> {
  const axis = side === "left" ? 0 : 1;
  const edge = Math.min(...Object.values(places).map((place) => place[axis]));
  const moved: Record<string, Place> = {};
  for (const [id, place] of Object.entries(places)) {
    if (place[axis] !== edge) moved[id] = axis === 0 ? [edge, place[1]] : [place[0], edge];
  }
  return moved;
}

/** The place nearest to `wanted` where a new block covers none of `taken`, in columns and steps of the grid around it. */
export function freePlace(wanted: Place, size: { width: number; height: number }, taken: Box[]): Place {
  const gap = 20;
  const [x, y] = [snapped(wanted[0]), snapped(wanted[1])];
  const places: { at: Place; far: number }[] = [];
  for (let column = -3; column <= 6; column++) {
    for (let row = -8; row <= 16; row++) {
      const [dx, dy] = [column * (CARD + 90), row * 50];
      // To the right and below rather than to the left and above: pages grow that way.
      places.push({ at: [x + dx, y + dy], far: Math.hypot(dx * (dx < 0 ? 1.6 : 1), dy * (dy < 0 ? 1.6 : 1)) });
    }
  }
  places.sort((left, right) => left.far - right.far);
  const isFree = ([left, top]: Place): boolean => !taken.some((box) => left < box.x + box.width + gap && box.x < left + size.width + gap && top < box.y + box.height + gap && box.y < top + size.height + gap);
  return places.find(({ at }) => isFree(at))?.at ?? [x, y];
}

const CLOSE = 400; // nothing further below matters
const EDGES = 30; // what lines and padding around results take, and a gap

/** For blocks that have others close below: the height that is left for their results. At least their first line is shown. */
export function roomsBelow(boxes: (Box & { id: string })[]): Record<string, number> {
  const rooms: Record<string, number> = {};
  const sorted = boxes.toSorted((left, right) => left.y - right.y);
  sorted.forEach((box, at) => {
    const bottom = box.y + box.height;
    for (let below = at + 1; below < sorted.length && (sorted[below] as Box).y < bottom + CLOSE; below++) {
      const other = sorted[below] as Box;
      if (other.y <= box.y || other.x >= box.x + box.width || box.x >= other.x + other.width) continue;
      rooms[box.id] = Math.max(18, other.y - bottom - EDGES);
      break;
    }
  });
  return rooms;
}

const STEPS: Record<string, Place> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** How far an arrow key moves: one step of the grid, with Shift five. */
export function nudge(key: string, far: boolean): Place | null {
  const step = STEPS[key];
  return step ? [step[0] * GRID * (far ? 5 : 1), step[1] * GRID * (far ? 5 : 1)] : null;
}
