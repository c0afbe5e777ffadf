// What the server and this page say to each other; see PROTOCOL.md.

export type Source = string | number | boolean | null | Source[] | { value: unknown; dtype?: string; shape?: number[] } | { file: string };

export interface Look {
  shape: "circle" | "ring" | "square" | "diamond" | "triangle" | "hexagon" | "cross";
  colour: string;
}

export interface PinDoc {
  name: string;
  dtype: string; // a type, or a variable such as T
  dtypes: string[]; // the types it takes
  shape: string;
  doc: string;
  many: boolean;
}

export interface AttributeDoc {
  name: string;
  kind: "bool" | "int" | "float" | "text" | "dtype" | "shape" | "list" | "numbers" | "value";
  default: unknown;
  required: boolean;
  dtypes: string[]; // for kind dtype: what may be chosen
  doc: string;
}

export interface OperatorDoc {
  name: string;
  family: string;
  role: string; // "operator", or const, placeholder, variable, file, save, restore
  summary: string;
  formula: string;
  notes: string;
  errors: string[];
  cost: string;
  inputs: PinDoc[];
  outputs: PinDoc[];
  attributes: AttributeDoc[];
  gradient: Record<string, string[]>; // differentiable inputs and their rules
  example: { inputs: Record<string, Source>; attrs: Record<string, Source> };
}

export interface Catalogue {
  version: string;
  families: { name: string; title: string; header: string; frame: string }[];
  operators: OperatorDoc[];
  looks: Record<string, Look>; // by dtype; "" for a type that is not known
  dtypes: string[];
  optimizers: { name: string; settings: Record<string, number | boolean> }[];
}

export interface Signal {
  dtype: string | null;
  shape: (number | string)[] | null;
  text: string; // float32 [batch, 3]
}

export interface Block {
  id: string;
  op: string;
  at: [number, number];
  inputs: Record<string, Source>; // as in a page file: a string is a wire
  attrs: Record<string, Source>;
  in: Record<string, Signal[]>; // one for each thing at the pin
  out: Record<string, Signal>;
  missing: string[];
  group: string; // the path of the group that it is in; empty for none
  pins: { role: string; inputs: PinDoc[]; outputs: PinDoc[] } | null; // of a group, or made by attributes; else the catalogue's
}

export interface Group {
  name: string; // its path: outer/inner
  collapsed: boolean;
  at: [number, number];
  kind: "" | "gradients" | "training"; // what it is derived as
  about: string; // what it is derived from
  settings: Record<string, number | string | boolean>;
  problem: string | null;
  members: number;
}

export interface Problem {
  message: string;
  block: string | null;
  pin: string | null;
  code: string;
  position?: number | number[] | null;
  value?: unknown;
}

export interface Heat {
  rows: number;
  columns: number; // of the picture; each cell may stand for several elements
  values: (number | null)[][]; // null: not a finite number
  low: number;
  high: number; // zero-centred: low = −high where there are both signs, both 0 where all is
  row_step: number;
  column_step: number;
}

export interface Value {
  signal: string; // float32 [3, 3]
  dtype: string;
  shape: number[];
  summary: string; // min −1  max 2  mean 0.3; for screen readers too
  odd: string; // how many elements are not finite: 3 NaN, 1 infinity; empty where all are
  kind: "cells" | "heat" | "empty";
  cells: string[][]; // kind cells: every element as text, rows of a matrix (a vector is one column, a scalar one cell)
  heat: Heat | null;
}

export interface Result {
  status: "done" | "failed" | "skipped" | "waiting";
  stale: boolean;
  seconds: number;
  error: Problem | null;
  needs: string | null;
  reason: string; // the status in words
  outputs: Record<string, Value>;
}

export interface Note {
  id: string;
  text: string;
  at: [number, number];
}

export interface PageEvent {
  event: "page";
  whole: boolean;
  revision: number;
  name: string;
  path: string | null;
  dirty: boolean;
  undo: string | null;
  redo: string | null;
  blocks: Record<string, Block | null>;
  order: string[];
  groups: Group[];
  notes: Note[];
  problems: Problem[];
}

export interface ResultsEvent {
  event: "results";
  whole: boolean;
  blocks: Record<string, Result | null>;
}

export interface ProgressEvent {
  event: "progress";
  running: boolean;
  step: number;
  steps: number;
  done: number;
  total: number;
  block: string | null;
  run: number | null; // the run that records
  begins: number; // the step from which on `recorded` has its values
  recorded: Record<string, (number | null)[]>; // null: not a finite number
}

export interface Run {
  id: number;
  name: string;
  asked: number; // steps
  steps: number; // that were taken, when it ended or paused
  paused: boolean;
  about: string; // of a sweep: what was set
  outputs: string[];
  marks: { step: number; text: string }[]; // after which step what was changed
  compared: boolean; // its results can be compared with others
  values: Record<string, (number | null)[]> | null; // null: as they were told
}

export interface RunsEvent {
  event: "runs";
  whole: boolean;
  runs: Run[];
  before: boolean; // there are results of the run before to compare with
}

export interface DiskEvent {
  event: "disk";
}

export interface SavedEvent {
  event: "saved";
  path: string;
}

export type ServerEvent = PageEvent | ResultsEvent | ProgressEvent | DiskEvent | SavedEvent | RunsEvent;

export interface Answer {
  n: number;
  ok?: Record<string, unknown>;
  error?: Problem;
}

export interface FileEntry {
  path: string;
  name: string;
  modified: number;
}

export interface Files {
  folder: string;
  pages: FileEntry[];
  drafts: { id: string; name: string; path: string | null; about: string; modified: number }[];
  examples: { name: string; title: string; summary: string; blocks: number }[];
}

export interface DataFile {
  path: string; // in the page's folder
  size: number;
}

export interface Preview {
  path: string;
  columns: { name: string; kind: string; ragged: boolean; sample: string[] }[];
}

export interface Origins {
  rows: Record<string, number[]>; // input pin → the rows that went into it
}

export interface Rows {
  rows: number;
  columns: number; // of the whole array
  start: number;
  column: number; // the first of each
  ids: number[]; // which row each one is
  cells: string[][];
}

export interface Region {
  top: number;
  bottom: number;
  left: number;
  right: number;
  heat: Heat;
}

export interface Histogram {
  counts: number[];
  edges: number[];
  elements: number;
  nans: number;
  above: number; // +inf
  below: number; // −inf
  zeros: number;
  least: number | null;
  largest: number | null;
  mean: number | null;
}

export interface Series {
  ids: number[];
  columns: number[];
  values: (number | null)[][];
}

export interface Projection {
  ids: number[];
  points: [number, number][];
  labels: string[] | null;
  shares: number[]; // of the variance
  rows: number;
  left_out: number; // rows with anything that is not finite
}

export interface Element {
  block: string;
  pin: string;
  index: number[];
}

/** An entry of an input, and where on the page it comes from; null for a literal. */
export interface Entry {
  input: string;
  part: number | null;
  index: number[];
  value: number | string | boolean;
  source: Element | null;
}

/** An entry of a number, what it is multiplied with, and the sum so far. */
export interface Part {
  name: string; // grad[0, 1]
  input: string;
  part: number | null;
  index: number[];
  value: number | string | boolean;
  source: Element | null;
  because: Entry[]; // the ids that brought it here
  factor?: unknown;
  factor_text?: string;
  product?: unknown;
  total?: unknown;
  is_chosen?: boolean; // the largest of a segment
  derivative?: unknown;
}

export interface Explanation {
  block: string;
  pin: string;
  index: number[];
  op: string;
  value: number | string | boolean;
  dtype: string;
  computed_in: string;
  formula: string;
  numbers: string;
  reason: string;
  parts: Part[];
  left_out: number;
}

export interface Explained {
  explanation: Explanation;
  uses: Element[]; // elements of the page that are made with it
}
