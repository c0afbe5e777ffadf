// Keys that work everywhere on the page. Fields keep theirs, but for those with Ctrl that mean the page.

import { aligned, nudge, type Place } from "./logic/arrange";
import { noteOf } from "./logic/flow";
import { groupSelected, ungroupSelected } from "./groups";
import { inCell } from "./host";
import { openDialog, say, store } from "./store";
import { copy, duplicate, pasteText } from "./clipboard";
import { drop, endWire, redo, removeSelected, run, save, select, selectedBlocks, selection, stop, undo } from "./studio";
import { fit, nextFitting, placeForNew, zoomBy } from "./view";

const isField = (target: EventTarget | null): boolean => target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable);
const isNote = (target: EventTarget | null): boolean => target instanceof HTMLTextAreaElement; // it has its own history, and is gone when it is done
const nodeAt = (target: EventTarget | null): string | null => (target instanceof HTMLElement && target.classList.contains("react-flow__node") ? (target.dataset["id"] ?? null) : null);

/** What a key acts on: the selection, or the block that has the focus where it is not part of it. */
function grasp(target: EventTarget | null): void {
  const node = nodeAt(target);
  if (node && !selection().includes(node)) select([node]);
}

let moving: ReturnType<typeof setTimeout> | undefined;

/** Arrow keys move at once, and tell the server when they rest: one burst is one step of undo. */
function move([x, y]: Place): void {
  store.set(({ nodes }) => ({ nodes: nodes.map((node) => (node.selected ? { ...node, position: { x: node.position.x + x, y: node.position.y + y } } : node)) }));
  clearTimeout(moving);
  moving = setTimeout(() => {
    const chosen = store.get().nodes.filter((node) => node.selected);
    void drop(Object.fromEntries(chosen.map((node) => [node.id, [node.position.x, node.position.y] as Place])));
    say(chosen.length === 1 ? `${chosen[0]?.ariaLabel} is at ${chosen[0]?.position.x}, ${chosen[0]?.position.y}.` : `Moved ${chosen.length} blocks.`);
  }, 400);
}

export function align(side: "left" | "top"): void {
  const places: Record<string, Place> = {};
  for (const node of store.get().nodes) if (node.selected) places[node.id] = [node.position.x, node.position.y];
  const moved = aligned(places, side);
  if (Object.keys(moved).length) void drop(moved);
}

function withControl(event: KeyboardEvent, inField: boolean): boolean {
  const key = event.key.toLowerCase();
  const page: Record<string, () => void> = {
    s: () => void save(),
    ...(inCell ? {} : { o: () => openDialog({ kind: "open" }) }),
    k: () => openDialog({ kind: "add", adding: { at: null, wire: null } }),
    enter: () => void run(),
    z: () => void (event.shiftKey ? redo() : undo()), // in fields too: see parts/Field
    y: () => void redo(),
  };
  const canvas: Record<string, () => void> = {
    d: () => {
      grasp(event.target);
      void duplicate();
    },
    g: () => void (event.shiftKey ? ungroupSelected() : groupSelected()),
    a: () => select(store.get().nodes.filter((node) => node.type !== "frame").map((node) => node.id)),
  };
  if ((key === "z" || key === "y") && isNote(event.target)) return false;
  const found = page[key] ?? (inField ? undefined : canvas[key]);
  found?.();
  return Boolean(found);
}

function plain(event: KeyboardEvent): boolean {
  const { target, key } = event;
  const node = nodeAt(target);
  const step = nudge(key, event.shiftKey);
  if (step && (node || (selection().length > 0 && target === document.body))) {
    grasp(target);
    move(step);
  } else if (key === "Delete" || key === "Backspace") {
    grasp(target);
    void removeSelected();
  } else if (key === "F2") {
    grasp(target);
    const [block] = selectedBlocks();
    const note = selection().find((id) => noteOf(id) !== null);
    if (block) openDialog({ kind: "rename", block });
    else if (note) store.set({ editingNote: note });
  } else if ((key === "Enter" || key === " ") && node) {
    if (noteOf(node) !== null && key === "Enter") store.set({ editingNote: node });
    else if (event.shiftKey) select([...new Set([...selection(), node])]);
    else select([node]);
    say(`${selection().length} selected.`);
  } else if (event.altKey && (key === "l" || key === "t")) align(key === "l" ? "left" : "top");
  else if (key === "?") openDialog({ kind: "shortcuts" });
  else if (key === "f" && !event.altKey) fit();
  else if (key === "+" || key === "=") zoomBy(1.25);
  else if (key === "-") zoomBy(0.8);
  else return false;
  return true;
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const { wiring, progress } = store.get();
  const inField = isField(event.target);
  if (event.key === "Escape") {
    if (wiring) {
      endWire();
      say("The wire was cancelled.");
    } else if (progress?.running && !inField) void stop();
    else if (!inField && selection().length) select([]);
  } else if (wiring && event.key === "Tab") {
    event.preventDefault();
    nextFitting(event.shiftKey);
  } else if (event.ctrlKey || event.metaKey ? withControl(event, inField) : !inField && plain(event)) event.preventDefault();
}

const canCopy = (event: ClipboardEvent): boolean => !isField(event.target) && !String(getSelection()) && selectedBlocks().length > 0 && !document.querySelector("dialog[open]");

function onCopy(event: ClipboardEvent): void {
  if (!canCopy(event)) return;
  event.preventDefault();
  event.clipboardData?.setData("text/plain", copy());
}

function onCut(event: ClipboardEvent): void {
  if (!canCopy(event)) return;
  onCopy(event);
  void removeSelected();
}

function onPaste(event: ClipboardEvent): void {
  if (isField(event.target) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  void pasteText(event.clipboardData?.getData("text/plain") ?? "", placeForNew());
}

/** Undo of the browser's own menus: a text history of one field would reach into the others. */
function onBeforeInput(event: InputEvent): void {
  if (!/^history(Undo|Redo)$/.test(event.inputType) || isNote(event.target) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  void (event.inputType === "historyUndo" ? undo() : redo());
}

export function listen(): void {
  addEventListener("beforeinput", onBeforeInput);
  addEventListener("keydown", onKeyDown);
  addEventListener("copy", onCopy);
  addEventListener("cut", onCut);
  addEventListener("paste", onPaste);
}
