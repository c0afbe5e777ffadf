// Runs and what they recorded: as the server tells, smoothed for the chart, and written as CSV.

import type { ProgressEvent, Run, RunsEvent } from "../protocol";

export type Values = (number | null)[]; // null: not a finite number

export interface Recording extends Omit<Run, "values"> {
  values: Record<string, Values>;
}

/** The runs after an event; values that are not told again stay. */
export function applyRuns(before: Recording[], { runs }: RunsEvent): Recording[] {
  const known = new Map(before.map((run) => [run.id, run]));
  return runs.map((run) => ({ ...run, values: run.values ?? known.get(run.id)?.values ?? {} }));
}

/** What was recorded since the last event, at its place: the same event twice changes nothing. */
export function applyProgress(before: Recording[], { run, begins, recorded, step }: ProgressEvent): Recording[] {
  const entries = Object.entries(recorded ?? {}).filter(([, values]) => values.length > 0);
  if (run === null || !before.some(({ id }) => id === run)) return before;
  return before.map((one) => {
    if (one.id !== run) return one;
    const values = { ...one.values };
    for (const [output, found] of entries) values[output] = [...(values[output] ?? []).slice(0, begins), ...found];
    return { ...one, steps: Math.max(one.steps, step), values };
  });
}

/** An exponential moving average, as training charts have it: the weight of what was before, without the pull of the first value. */
export function smoothed(values: Values, weight: number): Values {
  if (weight <= 0) return values;
  let [mean, debt] = [0, 1];
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    debt *= weight;
    return mean / (1 - debt);
  });
}

const quoted = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** One line for each step of each run; an output that a run did not record is left empty. */
export function csvOf(runs: Recording[]): string {
  const outputs = [...new Set(runs.flatMap((run) => Object.keys(run.values)))];
  const lines = [["run", "step", ...outputs].map(quoted).join(",")];
  for (const run of runs) {
    const steps = Math.max(0, ...Object.values(run.values).map((values) => values.length));
    for (let step = 0; step < steps; step++) lines.push([quoted(run.name), step + 1, ...outputs.map((output) => run.values[output]?.[step] ?? "")].join(","));
  }
  return `${lines.join("\n")}\n`;
}

/** Values of a sweep as they are typed: `0.1, 0.2`, or `0.001 … 1 × 5` for five in equal ratios, `1 … 5 + 5` for five in equal steps. */
export function sweepValues(text: string): number[] | string {
  const range = /^\s*(\S+)\s*(?:…|\.\.\.?|to)\s*(\S+)\s*([×x*+])\s*(\d+)\s*$/i.exec(text);
  if (range) {
    const [low, high, count] = [Number(range[1]), Number(range[2]), Number(range[4])];
    const isRatio = range[3] !== "+";
    if (!Number.isFinite(low) || !Number.isFinite(high) || count < 2 || count > 30) return "A range has two numbers and 2 to 30 values.";
    if (isRatio && low * high <= 0) return "Equal ratios need two numbers of one sign; use + for equal steps.";
    return Array.from({ length: count }, (_, at) => Number((isRatio ? low * (high / low) ** (at / (count - 1)) : low + ((high - low) * at) / (count - 1)).toPrecision(6)));
  }
  const found = text.split(/[,;\s]+/).filter(Boolean).map(Number);
  if (!found.length || found.some((value) => !Number.isFinite(value))) return "Type numbers with commas between them, as 0.01, 0.1, 1; or a range, as 0.001 … 1 × 5.";
  return found.length > 30 ? "A sweep has at most 30 values." : found;
}
