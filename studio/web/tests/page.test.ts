import assert from "node:assert/strict";
import { test } from "node:test";
import { edgesOf, nodesOf, placedAnew } from "../src/logic/flow";
import { applyPage, applyResults, EMPTY_PAGE, outcome, pageFile, progressText } from "../src/logic/page";
import { curve, endOf, labelOf, upstream, wiresAt, wiresOf, withoutWire } from "../src/logic/wires";
import type { Block, PageEvent, ProgressEvent, Result } from "../src/protocol";

const block = (id: string, inputs: Block["inputs"] = {}, at: [number, number] = [0, 0]): Block => ({
  id,
  op: "Neg",
  at,
  inputs,
  attrs: {},
  in: {},
  out: { y: { dtype: "float32", shape: [2], text: "float32 [2]" } },
  missing: [],
  group: "",
  pins: null,
});
const event = (blocks: PageEvent["blocks"], order: string[], whole = false): PageEvent => ({ event: "page", whole, revision: 1, name: "p", path: null, dirty: true, undo: null, redo: null, blocks, order, groups: [], notes: [], problems: [] });
const progress = (change: Partial<ProgressEvent>): ProgressEvent => ({ event: "progress", running: true, step: 0, steps: 3, done: 0, total: 0, block: null, run: 1, begins: 0, recorded: {}, ...change });

test("changes keep what is the same", () => {
  const first = applyPage(EMPTY_PAGE, event({ a: block("a"), b: block("b", { x: "a:y" }) }, ["a", "b"], true));
  const second = applyPage(first, event({ b: null, c: block("c") }, ["a", "c"]));
  assert.equal(second.blocks["a"], first.blocks["a"]);
  assert.deepEqual(Object.keys(second.blocks), ["a", "c"]);
  const again = applyPage(second, event({ a: block("a"), c: block("c") }, ["a", "c"], true));
  assert.equal(again.blocks, second.blocks);
  assert.equal(again.order, second.order);
});

test("a whole event leaves nothing behind", () => {
  const first = applyPage(EMPTY_PAGE, event({ a: block("a"), b: block("b") }, ["a", "b"], true));
  assert.deepEqual(Object.keys(applyPage(first, event({ b: block("b") }, ["b"], true)).blocks), ["b"]);
});

test("results, and what they come to", () => {
  const result = (status: Result["status"]): Result => ({ status, stale: false, seconds: 0, error: null, needs: null, reason: "", outputs: {} });
  const all = applyResults({}, { event: "results", whole: true, blocks: { a: result("done"), b: result("failed"), c: result("skipped") } });
  assert.equal(outcome(all), "1 done, 1 failed, 1 skipped");
  assert.equal(outcome(applyResults(all, { event: "results", whole: false, blocks: { b: null, c: null } })), "1 done");
});

test("where a run stands", () => {
  assert.equal(progressText(progress({ step: 3, steps: 200, done: 4, total: 12, block: "loss" })), "step 3 of 200, block 5 of 12, loss");
  assert.equal(progressText(progress({ steps: 1 })), "running");
});

test("wires, also of pins that take many", () => {
  const blocks = { a: block("a"), b: block("b", { x: "a:y" }), c: block("c", { xs: ["a:y", 3, "b:y"], v: ["a", "b"] }) };
  const wires = wiresOf(blocks, ["a", "b", "c"], (_, pin) => pin === "xs");
  assert.deepEqual(wires.map((wire) => `${wire.source.block} ${wire.target.block}:${wire.target.pin} ${wire.position}`), ["a b:x 0", "a c:xs 0", "b c:xs 2"]);
  assert.equal(wires[0]?.label, "float32 [2]");
  assert.deepEqual(wires.map((wire) => [wire.siblings, wire.isLast]), [[2, false], [2, true], [1, true]]);
  assert.deepEqual([...upstream("c", wires)].sort(), ["a", "b", "c"]);
  assert.deepEqual([...upstream("b", wires)].sort(), ["a", "b"]);
  assert.deepEqual(withoutWire(["a:y", 3, "b:y"], 0), [3, "b:y"]);
  assert.equal(withoutWire(["a:y"], 0), null);
  assert.deepEqual(wiresAt(["a", "b"], false), []);
  assert.deepEqual(endOf("a:y"), { block: "a", pin: "y" });
  assert.deepEqual(endOf("a", blocks), { block: "a", pin: "y" });
});

test("labels leave out the block of a named size", () => {
  assert.equal(labelOf("float32 [rows.U, 3]"), "float32 [U, 3]");
  assert.equal(labelOf("float32 [batch, 3]"), "float32 [batch, 3]");
  assert.equal(labelOf("int64 [SparseSlice_1.N, 2]"), "int64 [N, 2]");
});

test("labels take one line, two, or none", () => {
  assert.deepEqual(curve(0, 0, 300, 50, "float32 [3, 3]").label?.lines, ["float32 [3, 3]"]);
  assert.deepEqual(curve(0, 0, 90, 50, "float32 [3, 3]").label?.lines, ["float32", "[3, 3]"]);
  assert.deepEqual(curve(0, 0, 300, 50, "float32 [3, 3]", true).label?.lines, ["float32", "[3, 3]"]);
  assert.equal(curve(0, 0, 40, 50, "float32 [3, 3]").label, null);
  assert.equal(curve(100, 0, 0, 50, "float32").label, null);
  assert.match(curve(0, 0, 100, 50, "").path, /^M0 0H0C50 0 50 50 100 50$/);
});

test("nodes keep their identity, and what is dragged its place", () => {
  const page = applyPage(EMPTY_PAGE, event({ a: block("a", {}, [10, 20]), b: block("b") }, ["a", "b"], true));
  const first = nodesOf([], page, () => 100);
  assert.equal(nodesOf(first, page, () => 100), first);
  const dragged = first.map((node) => (node.id === "a" ? { ...node, position: { x: 99, y: 99 } } : node));
  assert.deepEqual(nodesOf(dragged, page, () => 100)[0]?.position, { x: 99, y: 99 });
  const moved = applyPage(page, event({ a: block("a", {}, [50, 60]) }, ["a", "b"]));
  const second = nodesOf(dragged, moved, () => 100);
  assert.deepEqual(second[0]?.position, { x: 50, y: 60 });
  assert.equal(second[1], first[1]);
  assert.deepEqual(placedAnew(dragged, page)[0]?.position, { x: 10, y: 20 });
});

test("edges keep their identity unless their label changes", () => {
  const page = applyPage(EMPTY_PAGE, event({ a: block("a"), b: block("b", { x: "a:y" }) }, ["a", "b"], true));
  const wires = wiresOf(page.blocks, page.order, () => false);
  const first = edgesOf([], wires);
  assert.equal(edgesOf(first, wiresOf(page.blocks, page.order, () => false)), first);
  assert.notEqual(edgesOf(first, wires.map((wire) => ({ ...wire, label: "int32 []" })))[0], first[0]);
});

test("a page file of some blocks", () => {
  const page = applyPage(EMPTY_PAGE, event({ a: block("a"), b: block("b", { x: "a:y" }) }, ["a", "b"], true));
  assert.equal(pageFile(page, ["b"]), '{"rowgrad_page":1,"name":"p","blocks":[{"id":"b","op":"Neg","inputs":{"x":"a:y"},"at":[0,0]}]}');
});
