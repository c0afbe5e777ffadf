// Numbers where room is short: rounded, never cut, since a number without its exponent is another number.

/** `text` in `room` characters if rounding can do that; whole numbers and texts stay as they are. */
export function shortened(text: string, room: number): string {
  if (text.length <= room || !/^-?\d[\d.]*(e[+-]?\d+)?$/i.test(text) || !/[.e]/i.test(text)) return text;
  const value = Number(text);
  let best = text;
  for (let digits = 6; digits >= 2; digits--) {
    const forms = [String(Number(value.toPrecision(digits))), value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e")];
    best = forms.reduce((left, right) => (right.length < left.length ? right : left));
    if (best.length <= room) break;
  }
  return best.length < text.length ? best : text;
}

export interface Columns {
  cells: string[][];
  width: number; // of each column, in characters
  shown: number; // how many whole columns there is room for
  rounded: boolean;
}

const GAP = 1.4;
const LEAST = 6; // characters of a number below which it is better to scroll

/** Cells for a room of so many characters, the first `head` of which are taken by the numbers of rows. */
export function columnsFor(cells: string[][], room: number, head: number): Columns {
  const count = Math.max(1, ...cells.map((row) => row.length));
  const each = Math.max(LEAST, Math.floor((room - head) / count - GAP));
  const short = cells.map((row) => row.map((text) => shortened(text, each)));
  const width = Math.min(Math.floor(room - head - GAP), Math.max(1, ...short.flat().map((text) => text.length)));
  return { cells: short, width, shown: Math.max(1, Math.min(count, Math.floor((room - head) / (width + GAP)))), rounded: short.some((row, r) => row.some((text, c) => text !== cells[r]?.[c])) };
}

/** The place of an element of an array by its row and column in the table of it: a vector is one column, more axes are rows of the last. */
export function elementAt(shape: number[], row: number, column: number): number[] {
  if (shape.length === 0) return [];
  if (shape.length === 1) return [row];
  const place: number[] = [];
  let rest = row;
  for (const size of shape.slice(0, -1).toReversed()) {
    place.unshift(rest % Math.max(1, size));
    rest = Math.floor(rest / Math.max(1, size));
  }
  return [...place, column];
}
