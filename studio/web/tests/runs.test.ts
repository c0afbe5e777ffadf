// Runs: values come at their places, are smoothed and written; sweeps are read from what is typed; heat-maps zoom.

import assert from "node:assert/strict";
import { test } from "node:test";
import { scaleOf } from "../src/logic/chart";
import { inside, moved, zoomed } from "../src/logic/region";
import { applyProgress, applyRuns, csvOf, smoothed, sweepValues, type Recording } from "../src/logic/runs";
import type { ProgressEvent, Run } from "../src/protocol";

const run = (change: Partial<Run>): Run => ({ id: 1, name: "a", asked: 3, steps: 0, paused: false, about: "", outputs: ["l:y"], marks: [], compared: false, values: null, ...change });
const progress = (change: Partial<ProgressEvent>): ProgressEvent => ({ event: "progress", running: true, step: 0, steps: 3, done: 0, total: 0, block: null, run: 1, begins: 0, recorded: {}, ...change });

test("recorded values grow at their places, and an event that comes twice changes nothing", () => {
  let runs: Recording[] = applyRuns([], { event: "runs", whole: true, runs: [run({ values: { "l:y": [3] } }), run({ id: 2, values: {} })], before: false });
  const next = progress({ begins: 1, recorded: { "l:y": [2, null] } });
  runs = applyProgress(applyProgress(runs, next), next);
  assert.deepEqual(runs.map(({ values }) => values), [{ "l:y": [3, 2, null] }, {}]);
  runs = applyRuns(runs, { event: "runs", whole: false, runs: [run({ name: "b", paused: true })], before: true });
  assert.deepEqual([runs.length, runs[0]?.name, runs[0]?.paused, runs[0]?.values], [1, "b", true, { "l:y": [3, 2, null] }]);
  assert.equal(applyProgress(runs, progress({ run: 9 })), runs);
});

test("smoothing begins at the first value, keeps gaps and the number of steps", () => {
  assert.deepEqual(smoothed([4, 4, null, 4], 0.9).map((value) => value && Number(value.toFixed(9))), [4, 4, null, 4]);
  const [first, second] = smoothed([0, 10], 0.5) as number[];
  assert.equal(first, 0);
  assert.ok(Math.abs((second as number) - 20 / 3) < 1e-12);
  assert.deepEqual(smoothed([1, 2], 0), [1, 2]);
});

test("runs as CSV: a line for each step, names quoted, what was not recorded left empty", () => {
  const runs = applyRuns([], { event: "runs", whole: true, before: false, runs: [run({ name: 'lr = 0.1, "x"', values: { "l:y": [1, null] } }), run({ id: 2, name: "b", values: { "m:y": [0.5] } })] });
  assert.equal(csvOf(runs), 'run,step,l:y,m:y\n"lr = 0.1, ""x""",1,1,\n"lr = 0.1, ""x""",2,,\nb,1,,0.5\n');
});

test("values of a sweep are numbers, or a range in equal ratios or steps", () => {
  assert.deepEqual(sweepValues("0.1, 0.2;1e-3"), [0.1, 0.2, 0.001]);
  assert.deepEqual(sweepValues("0.001 … 10 × 5"), [0.001, 0.01, 0.1, 1, 10]);
  assert.deepEqual(sweepValues("1 to 5 + 3"), [1, 3, 5]);
  for (const wrong of ["", "a", "1, b", "-1 … 1 × 5", "1 … 2 × 1", "NaN"]) assert.equal(typeof sweepValues(wrong), "string", wrong);
});

test("a logarithmic scale leaves out what it cannot show, and is chosen by hand or by the range", () => {
  assert.equal(scaleOf([1, 2]).log, false);
  assert.equal(scaleOf([1, 2000]).log, true);
  assert.equal(scaleOf([-1, 0, 1, 20], true).log, true);
  assert.equal(scaleOf([1, 2000], false).log, false);
});

test("a heat-map zooms around a point and stays inside", () => {
  const whole = { top: 0, bottom: 1000, left: 0, right: 64 };
  assert.deepEqual(inside(zoomed(whole, 0.5, 0, 0), 1000, 64), { top: 0, bottom: 500, left: 0, right: 32 });
  assert.deepEqual(inside(zoomed(whole, 2, 0.5, 0.5), 1000, 64), whole);
  assert.deepEqual(inside(moved({ top: 990, bottom: 1000, left: 0, right: 4 }, 50, -3), 1000, 64), { top: 990, bottom: 1000, left: 0, right: 4 });
  assert.deepEqual(inside({ top: 3.2, bottom: 3.4, left: 1, right: 1 }, 10, 10), { top: 3, bottom: 4, left: 1, right: 2 });
});
