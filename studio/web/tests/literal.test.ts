import assert from "node:assert/strict";
import { test } from "node:test";
import { Exact, stringify } from "../src/logic/exact";
import { asSource, blankFor, isLarge, isTable, leafProblem, literalOf, read, readLeaf, readNumbers, readShape, shapeOf, tableOf, textOf, withCell, withColumn, withoutColumn, withoutRow, withRow, type Nested } from "../src/logic/literal";

const FLOATS = ["float32", "float64"];
const INDICES = ["int32", "int64"];
const value = (text: string, dtypes: string[]): Nested => {
  const found = read(text, dtypes);
  assert.ok(found.ok, found.ok ? "" : found.message);
  return found.value;
};
const problem = (text: string, dtypes: string[]): { message: string; place: number[] } => {
  const found = read(text, dtypes);
  assert.ok(!found.ok, `${text} was read`);
  return found;
};

test("scalars, vectors and matrices", () => {
  assert.equal(value("3", INDICES), 3);
  assert.deepEqual(value("[0, 1, 2]", INDICES), [0, 1, 2]);
  assert.deepEqual(value("0, 1, 2", INDICES), [0, 1, 2]);
  assert.deepEqual(value("[[1, 2.5], [3, -4]]", FLOATS), [[1, 2.5], [3, -4]]);
  assert.deepEqual(value("[]", FLOATS), []);
  assert.deepEqual(value("[[], []]", FLOATS), [[], []]);
  assert.equal(value("true", ["bool"]), true);
});

test("numbers are kept as they are meant", () => {
  assert.equal(stringify(value("[1.0, 2]", FLOATS)), "[1.0,2]");
  assert.equal(stringify(value("1.", FLOATS)), "1.0");
  assert.equal(stringify(value(".5", FLOATS)), "0.5");
  assert.equal(stringify(value("+007", INDICES)), "7");
  assert.equal(stringify(value("9223372036854775807", INDICES)), "9223372036854775807");
  assert.equal(value("nan", FLOATS), "NaN");
  assert.equal(value("-inf", FLOATS), "-Infinity");
});

test("what is no number is refused, with its place", () => {
  for (const text of ["1 2", "x", "1e", "--1", "0x10", "1,000.5.2", "1_000"]) assert.match(problem(text, FLOATS).message, /is not a number/);
  assert.deepEqual(problem("[[1, 2], [3, y]]", FLOATS).place, [1, 1]);
  assert.match(problem("1.5", INDICES).message, /1.5 is not a whole number. It takes int32, int64/);
  assert.match(problem("3000000000", ["int32"]).message, /too large for int32: -2147483648 to 2147483647/);
  assert.match(problem("[0, 9223372036854775808]", INDICES).message, /too large/);
  assert.match(problem("-1", ["uint8"]).message, /too large/);
  assert.match(problem("true", FLOATS).message, /boolean/);
  assert.match(problem("3", ["bool"]).message, /is a number/);
  assert.match(problem("nan", INDICES).message, /not a whole number/);
});

test("brackets and commas are counted", () => {
  assert.match(problem("[1, 2", FLOATS).message, /\] is missing/);
  assert.match(problem("[1,, 2]", FLOATS).message, /value is missing/);
  assert.match(problem("[1, ]", FLOATS).message, /value is missing/);
  assert.match(problem("[1] [2]", FLOATS).message, /after the end/);
  assert.match(problem('["a', ["string"]).message, /quotation mark/);
  assert.match(problem("", FLOATS).message, /empty/);
});

test("uneven lists name the place", () => {
  assert.deepEqual(problem("[[1, 2], [3]]", FLOATS), { ok: false, message: "[1] has 1 values where the first has 2.", place: [1] });
  assert.match(problem("[1, [2]]", FLOATS).message, /\[1\] is a list where the others are single values/);
  assert.match(problem("[[1], 2]", FLOATS).message, /\[1\] is a single value/);
});

test("texts", () => {
  assert.equal(value("a, b", ["string"]), "a, b");
  assert.equal(value('"a"', ["string"]), "a");
  assert.deepEqual(value("['a', \"b, [c]\"]", ["string"]), ["a", "b, [c]"]);
  assert.match(problem("abc", ["string", "float32"]).message, /Put a text in quotes: "abc"/);
  assert.equal(value('"abc"', ["string", "float32"]), "abc");
  assert.match(problem('"abc"', FLOATS).message, /is a text/);
});

test("sources as in a page file", () => {
  assert.deepEqual(asSource([1, 2], null, INDICES), [1, 2]);
  assert.deepEqual(asSource([1, 2], "int64", INDICES), { value: [1, 2], dtype: "int64" });
  assert.deepEqual(asSource("a", null, ["string"]), { value: "a", dtype: "string" });
  assert.deepEqual(asSource(["NaN", 1], null, ["float64"]), { value: ["NaN", 1], dtype: "float64" });
  assert.equal(literalOf("grad:output"), null);
  assert.deepEqual(literalOf({ value: [], dtype: "int64", shape: [0, 2] }), { value: [], dtype: "int64", shape: [0, 2], file: null });
  assert.equal(literalOf({ file: "ids.npy" })?.file, "ids.npy");
  assert.deepEqual(literalOf(3), { value: 3, dtype: null, shape: null, file: null });
});

test("what is written is read back", () => {
  for (const text of ["[[1, 2], [3, 4]]", "[1.0, 2.5]", '["a", "b\\n"]', "true", "NaN", "12345678901234567890"]) {
    const dtypes = text.includes('"') ? ["string"] : text === "true" ? ["bool"] : ["float64"];
    assert.equal(textOf(value(text, dtypes)), text);
  }
});

test("tables: cells, rows, columns", () => {
  const matrix: Nested = [[1, 2], [3, 4]];
  assert.deepEqual(withCell(matrix, 1, 0, 9), [[1, 2], [9, 4]]);
  assert.deepEqual(withCell([1, 2], 0, 1, 9), [1, 9]);
  assert.equal(withCell(1, 0, 0, 9), 9);
  assert.deepEqual(withRow(matrix, 0), [[1, 2], [3, 4], [0, 0]]);
  assert.deepEqual(withRow([1, 2], 0), [[1, 2], [0, 0]]);
  assert.deepEqual(withColumn(matrix, 0), [[1, 2, 0], [3, 4, 0]]);
  assert.deepEqual(withColumn([1], 0), [1, 0]);
  assert.deepEqual(withColumn(5, 0), [5, 0]);
  assert.deepEqual(withoutRow(matrix, 0), [[3, 4]]);
  assert.deepEqual(withoutColumn(matrix, 1), [[1], [3]]);
  assert.deepEqual(withoutColumn([1, 2], 0), [2]);
  assert.deepEqual(tableOf([1, 2]), [[1, 2]]);
  assert.deepEqual(shapeOf([[1, 2, 3]]), [1, 3]);
  assert.deepEqual(matrix, [[1, 2], [3, 4]]);
});

test("what a new cell holds", () => {
  assert.equal(blankFor(["a"], ["string"]), "");
  assert.equal(blankFor([true], ["bool"]), false);
  assert.equal(String(blankFor([new Exact("1.0")], FLOATS)), "0.0");
  assert.equal(blankFor([], FLOATS), 0);
  assert.equal(blankFor([], ["string"]), "");
});

test("large ones are shown by type and shape", () => {
  const large = literalOf(Array.from({ length: 64 }, () => [1, 2])) as NonNullable<ReturnType<typeof literalOf>>;
  assert.ok(isLarge(large) && !isTable(large.value));
  assert.ok(!isTable([[[1]]]));
});

test("cells", () => {
  assert.deepEqual(readLeaf(" 1.5 ", FLOATS), { ok: true, value: 1.5 });
  assert.ok(!readLeaf("", FLOATS).ok);
  assert.deepEqual(readLeaf("", ["string"]), { ok: true, value: "" });
  assert.equal(leafProblem(1, ["complex64"]), null);
});

test("shapes", () => {
  assert.deepEqual(readShape("[batch, 3]"), { ok: true, value: ["batch", 3] });
  assert.deepEqual(readShape("3"), { ok: true, value: [3] });
  assert.deepEqual(readShape("[]"), { ok: true, value: [] });
  assert.deepEqual(readShape(""), { ok: true, value: null });
  for (const text of ["[1,]", "[-1]", "1.5", "a b"]) assert.ok(!readShape(text).ok, text);
});

test("numbers are read with or without brackets, and what is none is named", () => {
  assert.deepEqual(readNumbers("[1, -2.5, 1e3]"), { ok: true, value: [1, -2.5, 1000] });
  assert.deepEqual(readNumbers(" 0.5,2 "), { ok: true, value: [0.5, 2] });
  assert.deepEqual(readNumbers("[]"), { ok: true, value: [] });
  assert.deepEqual(readNumbers("1, x"), { ok: false, message: "x is not a number." });
  assert.deepEqual(readNumbers("1,,2"), { ok: false, message: "A number is missing." });
});
