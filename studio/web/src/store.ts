// What the page shows, in one place. A store of our own: a value, a way to change it, and a hook that draws again what depends on it.

import type { Edge, Node } from "@xyflow/react";
import { useRef, useSyncExternalStore } from "react";
import { inCell } from "./host";
import type { ConnectionState } from "./logic/connection";
import { EMPTY_PAGE, type PageState } from "./logic/page";
import type { Obstacle } from "./logic/route";
import type { Recording } from "./logic/runs";
import type { Wire } from "./logic/wires";
import type { Item } from "./parts/Menu";
import type { Slider } from "./runs";
import type { Block, Catalogue, Element, FileEntry, OperatorDoc, Problem, ProgressEvent, Result, Source } from "./protocol";

export interface Wiring {
  from: string; // block:pin
  kind: "output" | "input"; // what it starts from
  by: "mouse" | "keyboard";
  held?: Wire; // the end of a wire that is there is being dragged
  fits: Set<string> | null; // null while the server is asked
}

/** Where a block is to be added, and what to join it to. */
export interface Adding {
  at: [number, number] | null;
  wire: { from: string; kind: "output" | "input"; operators: { op: string; pin: string }[] } | null;
}

export type Dialog =
  | { kind: "add"; adding: Adding }
  | { kind: "open" }
  | { kind: "examples" }
  | { kind: "save as" }
  | { kind: "loop" }
  | { kind: "sweep"; target?: string }
  | { kind: "train" }
  | { kind: "data"; path: string | null; at: [number, number] | null }
  | { kind: "shortcuts" }
  | { kind: "gradients"; output: string }
  | { kind: "rename"; block: string }
  | { kind: "result"; block: string; pin: string; element?: number[] }
  | { kind: "text"; block: string; name: string; attribute: boolean }
  | { kind: "ask"; title: string; text: string; yes: string; answer: (yes: boolean) => void };

export interface Tab {
  document: string;
  name: string;
  dirty: boolean;
}

export interface State {
  own: FileEntry[]; // groups that were saved as blocks
  tabs: Tab[]; // the pages that are open here
  menu: { label: string; items: Item[]; anchor: { left: number; top: number; bottom: number; right: number } } | null;
  catalogue: Catalogue | null;
  operators: Map<string, OperatorDoc>;
  document: string | null;
  page: PageState;
  wires: Wire[];
  results: Record<string, Result>;
  progress: ProgressEvent | null;
  runs: Recording[]; // what loops have recorded, the oldest first
  hiddenRuns: Set<number>;
  before: boolean; // there are results of the run before
  dock: { open: boolean; height: number; log: boolean | null; smooth: number }; // log null: as it fits
  sliders: Slider[];
  evaluated: Record<string, number | null>; // means over the examples of a split, and which
  connection: ConnectionState;
  lost: string | null; // why trying again is of no use
  disk: boolean; // the file has changed on disk
  nodes: Node[];
  edges: Edge[];
  selected: string | null; // the block the inspector tells about
  shownOperator: string | null; // or an operator of the palette
  wiring: Wiring | null;
  pinErrors: Record<string, string>;
  refused: Record<string, Problem>; // what was typed and not taken, by the field's label
  rooms: Record<string, number>; // how high the results of a block may be, where others stand close below
  busy: string | null; // what is being made, while it takes
  lit: Record<string, number[]>; // rows lit up, by `in block:pin` and `out block:pin`
  dialog: Dialog | null;
  said: { text: string; n: number; alarm: boolean };
  panels: { palette: boolean; inspector: boolean; problems: boolean };
  tour: number | null;
  lesson: { id: string; step: number; reached: number } | null; // reached: so many steps were done
  why: Element | null; // the element that was asked about last
  lookedAt: string; // the result that was looked at last, and how
  editingNote: string | null; // a node
  fed: Record<string, Source>; // what placeholders were fed with from here
  obstacles: Obstacle[]; // cards that wires are led around; none on pages of very many
  folded: Set<string>; // cards of which only the head is shown
  far: boolean; // many blocks, seen from afar: cards are drawn without what could not be read
}

const narrow = typeof matchMedia !== "undefined" && matchMedia("(max-width: 860px)").matches;

let state: State = {
  own: [],
  tabs: [],
  menu: null,
  catalogue: null,
  operators: new Map(),
  document: null,
  page: EMPTY_PAGE,
  wires: [],
  results: {},
  progress: null,
  runs: [],
  hiddenRuns: new Set(),
  before: false,
  dock: { open: true, height: typeof innerHeight === "undefined" || innerHeight > 800 ? 240 : 180, log: null, smooth: 0 },
  sliders: [],
  evaluated: {},
  connection: "connecting",
  lost: null,
  disk: false,
  nodes: [],
  edges: [],
  selected: null,
  shownOperator: null,
  wiring: null,
  pinErrors: {},
  refused: {},
  rooms: {},
  busy: null,
  lit: {},
  dialog: null,
  said: { text: "", n: 0, alarm: false },
  panels: { palette: !narrow && !inCell, inspector: !narrow && !inCell, problems: true },
  tour: null,
  lesson: null,
  why: null,
  lookedAt: "",
  editingNote: null,
  fed: {},
  obstacles: [],
  folded: new Set(),
  far: false,
};
const listeners = new Set<() => void>();

export const store = {
  get: (): State => state,
  set(change: Partial<State> | ((before: State) => Partial<State>)): void {
    state = { ...state, ...(typeof change === "function" ? change(state) : change) };
    for (const listener of listeners) listener();
  },
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

/** Tells screen readers, and everyone in the status line. */
export function say(text: string, alarm = false): void {
  store.set(({ said }) => ({ said: { text, n: said.n + 1, alarm } }));
}

/** What a block is: of the catalogue, or with pins of its own. */
export function operatorOf(block: Block | undefined, { operators } = store.get()): OperatorDoc | undefined {
  if (!block) return undefined;
  const known = operators.get(block.op);
  if (!block.pins) return known;
  const made = OWN.get(block.pins) ?? { ...(known ?? UNLISTED), name: block.op, role: block.pins.role, inputs: block.pins.inputs, outputs: block.pins.outputs };
  OWN.set(block.pins, made);
  return made;
}

const OWN = new WeakMap<object, OperatorDoc>(); // so that what stays the same is drawn once
const UNLISTED: OperatorDoc = { name: "", family: "page", role: "group", summary: "Groups saved as blocks, with pins to the outside.", formula: "", notes: "", errors: [], cost: "", inputs: [], outputs: [], attributes: [], gradient: {}, example: { inputs: {}, attrs: {} } };

/** What was said of an error holds until something works. */
export function hush(): void {
  if (store.get().said.alarm) say("");
}

/** What a field shows does not hold. */
export const refuse = (label: string, problem: Problem): void => store.set(({ refused }) => ({ refused: { ...refused, [label]: problem } }));

/** The field shows what holds again. */
export function takeBack(label: string): void {
  const { [label]: _, ...refused } = store.get().refused;
  store.set({ refused });
  hush();
}

/** A part of the state; drawn again when it changes, told by `===` or by `equal`. */
export function useStore<T>(select: (state: State) => T, equal: (left: T, right: T) => boolean = Object.is): T {
  const last = useRef<{ value: T } | null>(null);
  return useSyncExternalStore(store.subscribe, () => {
    const value = select(state);
    if (last.current && equal(last.current.value, value)) return last.current.value;
    last.current = { value };
    return value;
  });
}

export const openDialog = (dialog: Dialog | null): void => store.set({ dialog });
