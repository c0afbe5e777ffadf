// Literals: what users type into pins and attributes, strictly read, and written back as in a page file. Which types a pin takes
// comes from the catalogue; the server has the last word.

import type { Source } from "../protocol";
import { Exact, exactNumber } from "./exact";

export type Leaf = number | Exact | boolean | string;
export type Nested = Leaf | Nested[];

/** A source that is a literal, in its parts. */
export interface Literal {
  value: Nested;
  dtype: string | null;
  shape: number[] | null; // only for arrays without elements
  file: string | null;
}

export type Read = { ok: true; value: Nested } | { ok: false; message: string; place: number[] };

const LARGEST = 60; // elements that are edited as a table
const ODD_NUMBERS: Record<string, string> = { nan: "NaN", inf: "Infinity", infinity: "Infinity", "+inf": "Infinity", "-inf": "-Infinity", "-infinity": "-Infinity" };
const RANGES: Record<string, [bigint, bigint]> = {};
for (const bits of [8, 16, 32, 64]) {
  const size = 1n << BigInt(bits);
  RANGES[`int${bits}`] = [-size / 2n, size / 2n - 1n];
  RANGES[`uint${bits}`] = [0n, size - 1n];
  RANGES[`qint${bits}`] = [-size / 2n, size / 2n - 1n];
  RANGES[`quint${bits}`] = [0n, size - 1n];
}
const isFloating = (dtype: string): boolean => /^(b?float|complex)/.test(dtype);
const isWhole = (dtype: string): boolean => dtype in RANGES;

/** A literal taken apart; null where the source is a wire or nothing is there. */
export function literalOf(source: Source | undefined): Literal | null {
  if (source === undefined || source === null || typeof source === "string") return null;
  if (typeof source === "object" && !Array.isArray(source) && !((source as unknown) instanceof Exact)) {
    if ("file" in source) return { value: [], dtype: null, shape: null, file: source.file };
    return { value: source.value as Nested, dtype: source.dtype ?? null, shape: source.shape ?? null, file: null };
  }
  return { value: source as unknown as Nested, dtype: null, shape: null, file: null };
}

/** The sizes of evenly nested lists, following the first of each. */
export function shapeOf(value: Nested): number[] {
  const shape: number[] = [];
  for (let inner: Nested | undefined = value; Array.isArray(inner); inner = inner[0]) shape.push(inner.length);
  return shape;
}

export function sizeOf(value: Nested): number {
  return shapeOf(value).reduce((product, size) => product * size, 1);
}

/** Whether it fits into a table of cells: a scalar, a vector or a matrix, not too large. */
export function isTable(value: Nested): boolean {
  return shapeOf(value).length <= 2 && sizeOf(value) <= LARGEST;
}

/** Whether it is shown as its type and shape rather than by its elements. */
export function isLarge(literal: Literal): boolean {
  return literal.file !== null || sizeOf(literal.value) > LARGEST;
}

/** A literal as text: what `read` reads. */
export function textOf(value: Nested, quoted = true): string {
  if (Array.isArray(value)) return `[${value.map((item) => textOf(item)).join(", ")}]`;
  if (typeof value === "string") return quoted && !Object.values(ODD_NUMBERS).includes(value) ? JSON.stringify(value) : value;
  return String(value);
}

/** What a leaf cannot be at a pin that takes `dtypes`, in words; null where it can. */
export function leafProblem(leaf: Leaf, dtypes: string[]): string | null {
  const listed = dtypes.length > 4 ? "" : ` It takes ${dtypes.join(", ")}.`;
  if (typeof leaf === "boolean") return dtypes.includes("bool") ? null : `${leaf} is a boolean.${listed}`;
  if (typeof leaf === "string") {
    if (dtypes.includes("string")) return null;
    if (Object.values(ODD_NUMBERS).includes(leaf)) return dtypes.some(isFloating) ? null : `${leaf} is not a whole number.${listed}`;
    return `“${leaf}” is a text.${listed}`;
  }
  if (dtypes.some(isFloating)) return null;
  const wholes = dtypes.filter(isWhole);
  if (!wholes.length) return `${leaf} is a number.${listed}`;
  const text = String(leaf);
  if (!/^-?\d+$/.test(text)) return `${text} is not a whole number.${listed}`;
  const value = BigInt(text);
  const ranges = wholes.map((dtype) => RANGES[dtype] as [bigint, bigint]);
  if (ranges.some(([low, high]) => low <= value && value <= high)) return null;
  const [low, high] = ranges.reduce((widest, range) => (range[1] > widest[1] ? range : widest));
  return `${text} is too large for ${wholes.join(", ")}: ${low} to ${high}.`;
}

/** One cell: a number, truth value or text, strictly. */
export function readLeaf(text: string, dtypes: string[]): Read {
  const onlyText = dtypes.length > 0 && dtypes.every((dtype) => dtype === "string");
  if (onlyText) return { ok: true, value: /^(".*"|'.*')$/s.test(text) ? unquoted(text) : text };
  const word = text.trim();
  if (word === "") return wrong("It is empty; type a value.");
  const leaf = leafOf(word);
  if (leaf === null) return wrong(dtypes.includes("string") ? `${word} is not a number. Put a text in quotes: "${word}".` : `${word} is not a number.`);
  const problem = leafProblem(leaf, dtypes);
  return problem ? wrong(problem) : { ok: true, value: leaf };
}

function leafOf(word: string): Leaf | null {
  if (/^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/.test(word)) {
    // As JSON writes it: no plus, no bare point, no leading zeros.
    const plain = word.replace(/^\+/, "").replace(/^(-?)\./, "$10.").replace(/\.(?=$|[eE])/, ".0").replace(/^(-?)0+(?=\d)/, "$1");
    return exactNumber(plain);
  }
  if (/^(true|false)$/i.test(word)) return word.toLowerCase() === "true";
  const odd = ODD_NUMBERS[word.toLowerCase()];
  if (odd) return odd;
  if (/^"(?:[^"\\]|\\.)*"$/s.test(word) || /^'[^'\\]*'$/s.test(word)) return unquoted(word);
  return null;
}

function unquoted(text: string): string {
  if (text.startsWith("'")) return text.slice(1, -1);
  try {
    return JSON.parse(text) as string;
  } catch {
    return text.slice(1, -1);
  }
}

function wrong(message: string, place: number[] = []): { ok: false; message: string; place: number[] } {
  return { ok: false, message, place };
}

/** A whole literal: one value, a list, or lists in a list; at the top level the brackets of a list may be left out. */
export function read(text: string, dtypes: string[]): Read {
  const trimmed = text.trim();
  if (dtypes.length > 0 && dtypes.every((dtype) => dtype === "string") && !trimmed.startsWith("[")) return readLeaf(text, dtypes);
  if (trimmed === "") return wrong("It is empty; type a value, or draw a wire.");
  const items = tokens(trimmed);
  if (!items) return wrong("A quotation mark is missing.");
  const bare = !trimmed.startsWith("[") && items.includes(",");
  const reader = new ListReader(bare ? ["[", ...items, "]"] : items, dtypes);
  const found = reader.value([]);
  if (!found.ok) return found;
  if (reader.rest() !== undefined) return wrong(`There is something after the end: ${reader.rest()}`);
  const uneven = unevenness(found.value, shapeOf(found.value), []);
  return uneven ?? found;
}

/** Brackets, commas and what stands between them; null where a quotation mark is open. */
function tokens(text: string): string[] | null {
  const found: string[] = [];
  const pattern = /\s*(?:([[\],])|("(?:[^"\\]|\\.)*"|'[^'\\]*')|([^[\],"']+))/gsy;
  while (pattern.lastIndex < text.length) {
    const match = pattern.exec(text);
    if (!match) return null;
    const token = (match[1] ?? match[2] ?? match[3] ?? "").trim();
    if (token) found.push(token);
  }
  return found;
}

class ListReader {
  private at = 0;
  constructor(private readonly items: string[], private readonly dtypes: string[]) {}

  rest(): string | undefined {
    return this.items[this.at];
  }

  value(place: number[]): Read {
    const token = this.items[this.at];
    if (token === undefined) return wrong("The list is not closed: ] is missing.", place);
    if (token === "]" || token === ",") return wrong(`A value is missing before ${token}`, place);
    this.at++;
    if (token !== "[") {
      const leaf = readLeaf(token, this.dtypes);
      return leaf.ok ? leaf : { ...leaf, place };
    }
    const list: Nested[] = [];
    if (this.rest() === "]") {
      this.at++;
      return { ok: true, value: list };
    }
    for (;;) {
      const item = this.value([...place, list.length]);
      if (!item.ok) return item;
      list.push(item.value);
      const next = this.items[this.at++];
      if (next === "]") return { ok: true, value: list };
      if (next !== ",") return wrong(next === undefined ? "The list is not closed: ] is missing." : `A comma is missing before ${next}`, place);
    }
  }
}

/** The first place where lists are nested unevenly, in words. */
function unevenness(value: Nested, shape: number[], place: number[]): Read | null {
  const where = place.length ? `[${place.join("][")}]` : "The literal";
  const [size, ...inner] = shape;
  if (size === undefined) return Array.isArray(value) ? wrong(`${where} is a list where the others are single values.`, place) : null;
  if (!Array.isArray(value)) return wrong(`${where} is a single value where the others are lists.`, place);
  if (value.length !== size) return wrong(`${where} has ${value.length} values where the first has ${size}.`, place);
  for (const [position, item] of value.entries()) {
    const found = unevenness(item, inner, [...place, position]);
    if (found) return found;
  }
  return null;
}

function leaves(value: Nested): Leaf[] {
  return Array.isArray(value) ? value.flatMap(leaves) : [value];
}

/** As it stands in a page file. A lone text and odd numbers need a type beside them, since a bare text is a wire. */
export function asSource(value: Nested, dtype: string | null, dtypes: string[]): Source {
  const odd = leaves(value).some((leaf) => typeof leaf === "string" && Object.values(ODD_NUMBERS).includes(leaf)) && !dtypes.every((name) => name === "string");
  if (dtype === null && odd) dtype = dtypes.includes("float32") ? "float32" : (dtypes.find(isFloating) ?? null);
  if (dtype !== null) return { value, dtype };
  return typeof value === "string" ? { value, dtype: "string" } : (value as unknown as Source);
}

/** Rows and columns of a table: a vector is one row, a scalar one cell. */
export function tableOf(value: Nested): Leaf[][] {
  if (!Array.isArray(value)) return [[value]];
  if (!value.some(Array.isArray)) return [value as Leaf[]];
  return value as Leaf[][];
}

/** The literal with another cell; as deep as it was. */
export function withCell(value: Nested, row: number, column: number, leaf: Leaf): Nested {
  if (!Array.isArray(value)) return leaf;
  if (shapeOf(value).length === 1) return value.with(column, leaf);
  return value.with(row, (value[row] as Nested[]).with(column, leaf));
}

/** A row more, a copy of what a new cell holds; a vector becomes a matrix. */
export function withRow(value: Nested, blank: Leaf): Nested {
  const rows: Nested[] = shapeOf(value).length === 2 ? (value as Nested[]) : [Array.isArray(value) ? value : [value]];
  const width = Math.max(1, (rows[0] as Nested[] | undefined)?.length ?? 1);
  return [...rows, Array<Nested>(width).fill(blank)];
}

/** A column more; a scalar becomes a vector. */
export function withColumn(value: Nested, blank: Leaf): Nested {
  if (!Array.isArray(value)) return [value, blank];
  if (shapeOf(value).length < 2) return [...value, blank];
  return value.map((row) => [...(row as Nested[]), blank]);
}

export function withoutRow(value: Nested, row: number): Nested {
  return Array.isArray(value) && shapeOf(value).length === 2 ? value.toSpliced(row, 1) : value;
}

export function withoutColumn(value: Nested, column: number): Nested {
  if (!Array.isArray(value)) return value;
  return shapeOf(value).length < 2 ? value.toSpliced(column, 1) : value.map((row) => (row as Nested[]).toSpliced(column, 1));
}

/** What a new cell holds, by the cells that are there. */
export function blankFor(value: Nested, dtypes: string[]): Leaf {
  const first = leaves(value)[0];
  if (typeof first === "string" && dtypes.includes("string")) return "";
  if (typeof first === "boolean") return false;
  if (first instanceof Exact && /[.eE]/.test(first.text)) return new Exact("0.0");
  if (first === undefined && dtypes.every((dtype) => dtype === "string") && dtypes.length > 0) return "";
  if (first === undefined && dtypes.every((dtype) => dtype === "bool") && dtypes.length > 0) return false;
  return 0;
}

/** A shape attribute: sizes and names of sizes, with or without brackets. Null where nothing is typed. */
export function readShape(text: string): { ok: true; value: (number | string)[] | null } | { ok: false; message: string } {
  const inner = text.trim().replace(/^\[(.*)\]$/s, "$1").trim();
  if (text.trim() === "") return { ok: true, value: null };
  if (inner === "") return { ok: true, value: [] };
  const sizes: (number | string)[] = [];
  for (const part of inner.split(",").map((item) => item.trim().replace(/^"(.*)"$/, "$1"))) {
    if (/^\d+$/.test(part)) sizes.push(Number(part));
    else if (/^[A-Za-z_][\w.]*$/.test(part)) sizes.push(part);
    else return { ok: false, message: part === "" ? "A size is missing." : `${part} is neither a size (0, 1, 2 …) nor the name of one.` };
  }
  return { ok: true, value: sizes };
}

/** A list of numbers, such as boundaries; brackets may be left out. */
export function readNumbers(text: string): { ok: true; value: number[] } | { ok: false; message: string } {
  const inner = text.trim().replace(/^\[(.*)\]$/s, "$1").trim();
  const numbers: number[] = [];
  for (const part of inner === "" ? [] : inner.split(",").map((item) => item.trim())) {
    if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(part)) return { ok: false, message: part === "" ? "A number is missing." : `${part} is not a number.` };
    numbers.push(Number(part));
  }
  return { ok: true, value: numbers };
}
