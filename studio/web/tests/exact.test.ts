import assert from "node:assert/strict";
import { test } from "node:test";
import { Exact, parse, stringify } from "../src/logic/exact";

test("numbers come back as they were written", () => {
  for (const text of ["1", "1.0", "-0.0", "1e5", "0.1", "9007199254740993", "-9223372036854775808", "[1.0,2,2.50]"]) {
    assert.equal(stringify(parse(text)), text === "[1.0,2,2.50]" ? "[1.0,2,2.5]" : text);
  }
});

test("plain numbers are plain, odd ones are exact", () => {
  assert.deepEqual(parse("[1, 2.5, true, null]"), [1, 2.5, true, null]);
  const [whole, large] = parse("[1.0, 12345678901234567890]") as [Exact, Exact];
  assert.ok(whole instanceof Exact && large instanceof Exact);
  assert.equal(Number(whole), 1);
});

test("texts, objects and escapes", () => {
  const text = '{"a": "x\\n\\u00e9 \\"", "b": {"c": [1.0, {}]}, "__proto__": 1e3}';
  const found = parse(text) as Record<string, unknown>;
  assert.equal(found["a"], 'x\né "');
  assert.equal(stringify(found["b"]), '{"c":[1.0,{}]}');
  assert.equal(Object.keys(found).length, 3);
});

test("what is no JSON is refused", () => {
  for (const text of ["[1.0", "1.0 2", "{1.0:2}", "[1.0,]", "01.0", '"\n1.0']) assert.throws(() => parse(text), SyntaxError, text);
});

test("undefined is left out of objects", () => assert.equal(stringify({ a: undefined, b: null }), '{"b":null}'));
