import assert from "node:assert/strict";
import { test } from "node:test";
import { aligned, freePlace, nudge } from "../src/logic/arrange";
import { cardWidth } from "../src/logic/card";
import { linesOf, scaleOf, ticksOf } from "../src/logic/chart";
import { brief, colourOf, heatSize, ODD, pixels, placeText, shade } from "../src/logic/heat";
import { lookOf, outline } from "../src/logic/pins";
import { find } from "../src/logic/search";
import type { OperatorDoc } from "../src/protocol";

test("colours: blue below zero, orange above, near-white at zero", () => {
  assert.deepEqual(shade(0), [247, 247, 247]);
  assert.deepEqual(shade(-1), [8, 48, 107]);
  assert.deepEqual(shade(1), [127, 39, 4]);
  assert.deepEqual(shade(5), shade(1));
  assert.deepEqual(colourOf(null, 1), ODD);
  assert.deepEqual(colourOf(0, 0), shade(0));
  const [red, , blue] = shade(-0.5);
  assert.ok(blue > red);
});

test("pixels, row by row", () => {
  const { width, height, data } = pixels([[0, 1], [null, -1]], 1);
  assert.deepEqual([width, height, data.length], [2, 2, 16]);
  assert.deepEqual([...data.slice(4, 8)], [127, 39, 4, 255]);
  assert.deepEqual([...data.slice(8, 11)], [...ODD]);
});

test("numbers and places in words", () => {
  assert.equal(brief(0.3333333), "0.33333");
  assert.equal(brief(1234567), "1.23e6");
  assert.equal(brief(0.00001), "1.00e-5");
  assert.equal(placeText(3, 2, 1, 1, [10, 10]), "row 3, column 2");
  assert.equal(placeText(3, 2, 4, 8, [100, 20]), "row 12 to 15, column 16 to 19");
  assert.equal(placeText(2, 0, 10, 1, [25]), "element 20 to 24");
});

test("heat-maps fill their room with cells of a sensible shape", () => {
  assert.deepEqual(heatSize(48, 8, 222, 62), { width: 48, height: 62 });
  assert.deepEqual(heatSize(1, 48, 222, 62), { width: 222, height: 19 });
  assert.deepEqual(heatSize(13, 13, 640, 420), { width: 364, height: 364 });
});

test("ticks are round", () => {
  assert.deepEqual(ticksOf(0, 1), [0, 0.5, 1]);
  assert.deepEqual(ticksOf(0, 83), [0, 50]);
  assert.deepEqual(ticksOf(-3, 3), [-2, 0, 2]);
  assert.deepEqual(ticksOf(2, 2), [2]);
});

test("scales: from zero where that is near, logarithmic over four powers of ten", () => {
  assert.equal(scaleOf([1, 0.2]).low, 0);
  assert.equal(scaleOf([100, 101]).low, 100);
  assert.ok(scaleOf([1e-6, 10]).log);
  assert.deepEqual(scaleOf([]), { low: 0, high: 1, ticks: [0, 1], log: false });
  assert.ok(scaleOf([5, 5]).high > 5);
  assert.ok(!scaleOf([NaN, 1, 2]).log);
});

test("lines have gaps where there is no number, and no more points than pixels", () => {
  const scale = scaleOf([0, 10]);
  assert.deepEqual(linesOf([0, null, 10], scale, 100, 50, 3), ["0,50", "100,0"]);
  const many = linesOf(Array.from({ length: 10_000 }, (_, i) => i / 1000), scale, 200, 50, 10_000);
  assert.ok((many[0]?.split(" ").length ?? 0) <= 202);
});

test("pins have outlines; circles have none", () => {
  assert.equal(outline("circle"), null);
  assert.equal(outline("square"), "-4.6,-4.6 4.6,-4.6 4.6,4.6 -4.6,4.6");
  assert.equal(lookOf(undefined, "float32").shape, "ring");
});

test("lining up moves only what is out of line", () => {
  assert.deepEqual(aligned({ a: [10, 0], b: [40, 5], c: [10, 9] }, "left"), { b: [10, 5] });
  assert.deepEqual(aligned({ a: [10, 0], b: [40, 5] }, "top"), { b: [40, 0] });
});

test("a free place covers nothing", () => {
  const size = { width: 250, height: 150 };
  assert.deepEqual(freePlace([12, 18], size, []), [10, 20]);
  const [x, y] = freePlace([0, 0], size, [{ x: 0, y: 0, width: 250, height: 150 }]);
  assert.ok(x >= 270 || y >= 170);
});

test("arrow keys", () => {
  assert.deepEqual(nudge("ArrowLeft", false), [-10, 0]);
  assert.deepEqual(nudge("ArrowDown", true), [0, 50]);
  assert.equal(nudge("Enter", false), null);
});

const operator = (name: string, summary = ""): OperatorDoc => ({ name, family: "f", role: "operator", summary, formula: "", notes: "", errors: [], cost: "", inputs: [], outputs: [], attributes: [], gradient: {}, example: { inputs: {}, attrs: {} } });
const OPERATORS = [operator("SparseSegmentMean"), operator("SparseSegmentMeanGrad"), operator("ReduceMean", "means along axes"), operator("Mean"), operator("Neg", "the other sign")];
const names = (query: string, only: { op: string; pin: string }[] | null = null): string[] => find(OPERATORS, { f: "Family" }, query, only).map((item) => item.operator.name);

test("search: the name itself first, then beginnings, capitals, sentences", () => {
  assert.equal(names("mean")[0], "Mean");
  assert.deepEqual(names("ssmg"), ["SparseSegmentMeanGrad"]);
  assert.deepEqual(names("sign"), ["Neg"]);
  assert.deepEqual(names("mean grad"), ["SparseSegmentMeanGrad"]);
  assert.equal(names("").length, 5);
  assert.deepEqual(names("zzz"), []);
});

test("search among what fits a wire, with its first pin", () => {
  const found = find(OPERATORS, {}, "", [{ op: "Neg", pin: "x" }, { op: "Neg", pin: "z" }]);
  assert.deepEqual(found.map((item) => [item.operator.name, item.pin]), [["Neg", "x"]]);
});

test("cards are wider where long names leave no room between them", () => {
  const pin = (name: string) => ({ name, dtype: "T", dtypes: [], shape: "", doc: "", many: false });
  assert.equal(cardWidth({ ...operator("Neg"), inputs: [pin("x")], outputs: [pin("y")] }), 250);
  assert.equal(cardWidth({ ...operator("Fill"), inputs: [pin("dense_shape")], outputs: [pin("empty_row_indicator")] }), 280);
  assert.equal(cardWidth(undefined), 250);
});
