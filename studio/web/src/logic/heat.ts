// Colours of heat-maps: from blue below zero over near-white to orange above, the same scale as in the library's pictures.

type Colour = readonly [number, number, number];

const BELOW: readonly Colour[] = [[8, 48, 107], [33, 113, 181], [107, 174, 214], [198, 219, 239]];
const ZERO: Colour = [247, 247, 247];
const ABOVE: readonly Colour[] = [[253, 208, 162], [253, 141, 60], [217, 72, 1], [127, 39, 4]];
const SCALE: readonly Colour[] = [...BELOW, ZERO, ...ABOVE];
export const ODD: Colour = [154, 163, 172]; // what is not a finite number

/** The colour of a share of the largest absolute value, from −1 to 1. */
export function shade(share: number): Colour {
  const place = ((Math.max(-1, Math.min(1, share)) + 1) / 2) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(place));
  const [from, to] = [SCALE[low] as Colour, SCALE[low + 1] as Colour];
  const part = place - low;
  return from.map((channel, i) => Math.round(channel + ((to[i] as number) - channel) * part)) as unknown as Colour;
}

/** The colour of a value where `most` is the largest absolute one. */
export function colourOf(value: number | null, most: number): Colour {
  return value === null || !Number.isFinite(value) ? ODD : shade(most > 0 ? value / most : 0);
}

export const css = ([red, green, blue]: Colour): string => `rgb(${red}, ${green}, ${blue})`;

/** The pixels of a heat-map, one for each cell, as canvas wants them. */
export function pixels(values: (number | null)[][], most: number): { width: number; height: number; data: Uint8ClampedArray<ArrayBuffer> } {
  const height = values.length;
  const width = values[0]?.length ?? 0;
  const data = new Uint8ClampedArray(width * height * 4);
  values.forEach((row, y) => row.forEach((value, x) => data.set([...colourOf(value, most), 255], (y * width + x) * 4)));
  return { width, height, data };
}

/** A number in a few digits. */
export function brief(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2).replace("e+", "e") : String(Number(value.toPrecision(5)));
}

/** Which elements a cell stands for: `row 3, column 0 to 7`. */
export function placeText(row: number, column: number, rowStep: number, columnStep: number, shape: number[]): string {
  const range = (at: number, step: number, size: number | undefined): string => {
    const last = Math.min(at * step + step, size ?? Infinity) - 1;
    return step > 1 && last > at * step ? `${at * step} to ${last}` : String(at * step);
  };
  if (shape.length < 2) return `element ${range(row, rowStep, shape[0])}`; // a vector is one column
  const columns = shape[shape.length - 1];
  return `row ${range(row, rowStep, undefined)}, column ${range(column, columnStep, columns)}`;
}

/** How large a heat-map is drawn: cells fill the room, but are at most 4 times as wide as high, and none is larger than needed. */
export function heatSize(rows: number, columns: number, width: number, height: number): { width: number; height: number } {
  const high = Math.min(28, height / rows);
  const wide = Math.min(28, width / columns, Math.max(4 * high, 6));
  return { width: Math.round(Math.max(wide * columns, 2)), height: Math.round(Math.max(Math.min(high, wide * 4) * rows, 2)) };
}
