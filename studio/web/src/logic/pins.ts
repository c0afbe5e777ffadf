// The outlines of pins, around their middle; the same as in the library's pictures.

import type { Look } from "../protocol";

const hexagon = Array.from({ length: 6 }, (_, i) => [5.8 * Math.cos((Math.PI / 3) * i), 5.8 * Math.sin((Math.PI / 3) * i)]);

const POINTS: Partial<Record<Look["shape"], number[][]>> = {
  square: [[-4.6, -4.6], [4.6, -4.6], [4.6, 4.6], [-4.6, 4.6]],
  diamond: [[0, -6.2], [6.2, 0], [0, 6.2], [-6.2, 0]],
  triangle: [[-4.6, -5.6], [5.8, 0], [-4.6, 5.6]],
  hexagon,
  cross: [[-2, -5.4], [2, -5.4], [2, -2], [5.4, -2], [5.4, 2], [2, 2], [2, 5.4], [-2, 5.4], [-2, 2], [-5.4, 2], [-5.4, -2], [-2, -2]],
};

/** The points of a polygon; null for circles and rings, which have a radius of 5. */
export function outline(shape: Look["shape"]): string | null {
  return POINTS[shape]?.map((point) => point.map((value) => Number(value.toFixed(2))).join(",")).join(" ") ?? null;
}

export const UNKNOWN: Look = { shape: "ring", colour: "#77818c" };

export function lookOf(looks: Record<string, Look> | undefined, dtype: string | null | undefined): Look {
  return looks?.[dtype ?? ""] ?? UNKNOWN;
}
