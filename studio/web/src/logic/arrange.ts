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

/** A place for a new block near `wanted` where it covers none of `taken`: further down, then to the right. */
export function freePlace(wanted: Place, size: { width: number; height: number }, taken: Box[]): Place {
  const gap = 20;
  const [x, y] = [snapped(wanted[0]), snapped(wanted[1])];
  for (let column = 0; column < 20; column++) {
    for (let row = 0; row < 12; row++) {
      const at: Place = [x + column * (CARD + 40), y + row * 60];
      const covers = (box: Box): boolean => at[0] < box.x + box.width + gap && box.x < at[0] + size.width + gap && at[1] < box.y + box.height + gap && box.y < at[1] + size.height + gap;
      if (!taken.some(covers)) return at;
    }
  }
  return [x, y];
}

const STEPS: Record<string, Place> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** How far an arrow key moves: one step of the grid, with Shift five. */
export function nudge(key: string, far: boolean): Place | null {
  const step = STEPS[key];
  return step ? [step[0] * GRID * (far ? 5 : 1), step[1] * GRID * (far ? 5 : 1)] : null;
}
