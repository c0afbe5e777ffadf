// Wires lead around cards, and titles are as large as they fit.

import assert from "node:assert/strict";
import { test } from "node:test";
import { around, pathOf } from "../src/logic/route";
import { partsOf, sizeIn } from "../src/logic/title";
import { elementAt } from "../src/logic/numbers";

const box = (id: string, x: number, y: number) => ({ id, x, y, width: 100, height: 100 });
const isUnder = ([a, b]: [{ x: number; y: number }, { x: number; y: number }], { x, y, width, height }: { x: number; y: number; width: number; height: number }): boolean =>
  Math.max(a.x, b.x) > x && Math.min(a.x, b.x) < x + width && Math.max(a.y, b.y) > y && Math.min(a.y, b.y) < y + height;

test("a free curve stays, one that would run under a card is led around it", () => {
  const [from, to] = [{ x: 100, y: 50 }, { x: 400, y: 50 }];
  const ends = [box("a", 0, 0), box("c", 400, 0)];
  assert.equal(around(from, from, to, 150, ends, ["a", "c"]), null);
  const between = box("b", 200, 0);
  const corners = around(from, from, to, 150, [...ends, between], ["a", "c"]) ?? [];
  assert.ok(corners.length >= 4);
  assert.deepEqual([corners[0], corners.at(-1)], [from, to]);
  corners.slice(1).forEach((corner, at) => assert.equal(isUnder([corners[at] as { x: number; y: number }, corner], between), false));
});

test("a wire that leads back goes around its own cards", () => {
  const corners = around({ x: 500, y: 50 }, { x: 500, y: 50 }, { x: 0, y: 250 }, 200, [box("from", 400, 0), box("to", 0, 200)], ["from", "to"]);
  assert.ok(corners === null || corners.every(({ x, y }) => !(x > 0 && x < 100 && y > 200 && y < 300)));
});

test("where nothing is free, the curve stays", () => {
  const wall = { id: "wall", x: 110, y: -10_000, width: 280, height: 20_000 };
  assert.equal(around({ x: 100, y: 50 }, { x: 100, y: 50 }, { x: 400, y: 50 }, 150, [wall], ["a", "c"]), null);
});

test("paths have round corners and no stretch of no length", () => {
  assert.equal(pathOf([]), "");
  assert.equal(pathOf([{ x: 0, y: 0 }, { x: 0, y: 0 }, { x: 40, y: 0 }]), "M0 0L40 0");
  assert.equal(pathOf([{ x: 0, y: 0 }, { x: 40, y: 0 }, { x: 40, y: 40 }]), "M0 0L31 0Q40 0 40 9L40 40");
});

test("titles break between their words and fit their card", () => {
  assert.deepEqual(partsOf("SparseSegmentMeanGradV2"), ["Sparse", "Segment", "Mean", "Grad", "V2"]);
  assert.deepEqual(partsOf("training/w_accum"), ["training/", "w_", "accum"]);
  for (const name of ["x", "loss", "SparseSoftmaxCrossEntropyWithLogits", "", "UnsortedSegmentSum_12"]) {
    assert.equal(partsOf(name).join(""), name);
    const size = sizeIn(name, 250, 120);
    assert.ok(size >= 12 && size <= 64, `${name}: ${size}`);
  }
  assert.ok(sizeIn("SparseSoftmaxCrossEntropyWithLogits", 250, 120) < sizeIn("loss", 250, 120));
});

test("the place of an element by its row and column", () => {
  assert.deepEqual(elementAt([], 0, 0), []);
  assert.deepEqual(elementAt([5], 3, 0), [3]);
  assert.deepEqual(elementAt([5, 2], 3, 1), [3, 1]);
  assert.deepEqual(elementAt([2, 3, 4], 4, 2), [1, 1, 2]);
});
