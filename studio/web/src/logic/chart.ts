// Line charts of recorded values: scales, ticks and the points of lines.

export interface Scale {
  low: number;
  high: number;
  ticks: number[];
  log: boolean;
}

/** Round steps that cut a range into about `count` parts. */
export function ticksOf(low: number, high: number, count = 4): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power;
  const found: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** A scale for values; logarithmic where that is asked for and can be, or, by itself, where all are above zero and span three powers of ten. */
export function scaleOf(values: number[], log: boolean | null = null): Scale {
  const known = values.filter((value) => Number.isFinite(value) && (log !== true || value > 0));
  if (!known.length) return { low: 0, high: 1, ticks: [0, 1], log: false };
  let [low, high] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
  if (log !== false && low > 0 && high > low && (log || high / low > 1000)) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const every = Math.max(1, Math.ceil((last - first) / 5));
    const ticks = [];
    for (let power = first; power <= last; power += every) ticks.push(10 ** power);
    return { low: 10 ** first, high: 10 ** last, ticks, log: true };
  }
  if (low > 0 && low < high * 0.4) low = 0; // a loss is best seen against zero
  if (low === high) [low, high] = low === 0 ? [-1, 1] : [low - Math.abs(low) * 0.5, high + Math.abs(high) * 0.5];
  const ticks = ticksOf(low, high);
  return { low, high, ticks, log: false };
}

/** How far up a value is, from 0 to 1. */
export function heightOf(value: number, { low, high, log }: Scale): number {
  const at = log ? (Math.log10(value) - Math.log10(low)) / (Math.log10(high) - Math.log10(low)) : (value - low) / (high - low);
  return Math.max(0, Math.min(1, at));
}

/** Points of a line, `x,y x,y …`, at most one for each pixel; gaps where there is no number. */
export function linesOf(values: (number | null)[], scale: Scale, width: number, height: number, steps: number): string[] {
  const lines: string[] = [];
  let points: string[] = [];
  const every = Math.max(1, Math.floor(values.length / Math.max(1, width)));
  values.forEach((value, at) => {
    if (at % every && at !== values.length - 1) return;
    if (value === null || !Number.isFinite(value) || (scale.log && value <= 0)) {
      if (points.length) lines.push(points.join(" "));
      points = [];
      return;
    }
    const x = steps > 1 ? (at / (steps - 1)) * width : 0;
    points.push(`${Number(x.toFixed(1))},${Number((height - heightOf(value, scale) * height).toFixed(1))}`);
  });
  if (points.length) lines.push(points.join(" "));
  return lines;
}
