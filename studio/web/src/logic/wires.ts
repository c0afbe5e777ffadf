// Wires: where they come from and go to, and the curves they are drawn as.

import type { Block, Source } from "../protocol";
import { around, pathOf, type Obstacle } from "./route";

export interface End {
  block: string;
  pin: string;
}

export interface Wire {
  id: string;
  source: End;
  target: End;
  position: number; // among those at the pin
  dtype: string | null;
  label: string;
  siblings: number; // wires from the same pin
  isLast: boolean; // of these; it carries the label, since it is drawn above the others
}

export const nameOf = (end: End): string => `${end.block}:${end.pin}`;

/** `block:pin` in its parts; block names hold no colon after the last one. */
export function endOf(text: string, blocks: Record<string, Block> = {}): End {
  const colon = text.lastIndexOf(":");
  if (colon >= 0) return { block: text.slice(0, colon), pin: text.slice(colon + 1) };
  return { block: text, pin: Object.keys(blocks[text]?.out ?? {})[0] ?? "" };
}

/** The sources at a pin, one by one; `many` says that a list is one of sources rather than a literal. */
export function sourcesAt(source: Source | undefined, many: boolean): Source[] {
  if (source === undefined || source === null) return [];
  return many && Array.isArray(source) ? source : [source];
}

/** The wires at a pin, as they are written. */
export function wiresAt(source: Source | undefined, many: boolean): string[] {
  return sourcesAt(source, many).filter((item): item is string => typeof item === "string");
}

/** What is written on a wire: names of sizes without their block. */
export function labelOf(text: string): string {
  const short = text.replace(/[^\s[\],]+\.(?=[^\s[\],.]+[\],])/g, "");
  return short.length > 26 ? `${short.slice(0, 25)}…` : short;
}

/** All wires of a page; `isMany(op, pin)` is answered by the catalogue. */
export function wiresOf(blocks: Record<string, Block>, order: string[], isMany: (op: string, pin: string) => boolean): Wire[] {
  const found: Wire[] = [];
  for (const id of order) {
    const block = blocks[id];
    if (!block) continue;
    for (const [pin, given] of Object.entries(block.inputs)) {
      sourcesAt(given, isMany(block.op, pin)).forEach((item, position) => {
        if (typeof item !== "string") return;
        const source = endOf(item, blocks);
        const signal = blocks[source.block]?.out[source.pin];
        found.push({
          id: `${nameOf(source)} to ${id}:${pin} ${position}`,
          source,
          target: { block: id, pin },
          position,
          dtype: signal?.dtype ?? null,
          label: labelOf(signal?.text ?? ""),
          siblings: 0,
          isLast: false,
        });
      });
    }
  }
  const together = new Map<string, Wire[]>();
  for (const wire of found) {
    const wires = together.get(nameOf(wire.source));
    if (wires) wires.push(wire);
    else together.set(nameOf(wire.source), [wire]);
  }
  for (const wires of together.values()) {
    const other = wires.findLastIndex((wire) => blocks[wire.target.block]?.op !== "Group"); // wires to derived groups are faint
    wires.forEach((wire, at) => Object.assign(wire, { siblings: wires.length, isLast: at === (other < 0 ? wires.length - 1 : other) }));
  }
  return found;
}

/** The blocks that lead to `id`, itself among them. */
export function upstream(id: string, wires: Wire[]): Set<string> {
  const feeding = new Map<string, string[]>();
  for (const { source, target } of wires) feeding.set(target.block, [...(feeding.get(target.block) ?? []), source.block]);
  const found = new Set([id]);
  const due = [id];
  for (let next = due.pop(); next !== undefined; next = due.pop()) {
    for (const feeder of feeding.get(next) ?? []) {
      if (!found.has(feeder)) {
        found.add(feeder);
        due.push(feeder);
      }
    }
  }
  return found;
}

/** What is left at a pin of many when the wire at `position` is taken away; null clears it. */
export function withoutWire(source: Source | undefined, position: number): Source {
  const left = sourcesAt(source, true).filter((_, at) => at !== position);
  return left.length ? left : null;
}

export const LABEL_SIZE = 9.5;

/** The room that a line of a label takes; near enough without measuring. */
export function labelWidth(label: string): number {
  return label.length * LABEL_SIZE * 0.53 + 8;
}

export interface Curve {
  path: string;
  label: { x: number; y: number; width: number; lines: string[] } | null; // the left edge and the middle line; none where it does not fit
}

const BEFORE = 9; // from the pin to its label
const BEND = 18; // what a curve needs at least

/** The label in as many lines as its room asks for: type and shape side by side, or one above the other. */
function inLines(label: string, room: number, narrow: boolean): string[] | null {
  const space = label.indexOf(" ");
  const choices = [...(narrow && space > 0 ? [] : [[label]]), ...(space > 0 ? [[label.slice(0, space), label.slice(space + 1)]] : [])];
  return choices.find((lines) => label !== "" && Math.max(...lines.map(labelWidth)) + BEFORE + BEND <= room) ?? null;
}

/** The cards that a wire is led around, and those at its ends. */
export interface Lead {
  boxes: readonly Obstacle[];
  ends: readonly string[];
}

/** A wire: level through its label, then a curve to the target; backwards it swings around. Wires from one pin share a narrow label. */
export function curve(x: number, y: number, toX: number, toY: number, label: string, narrow = false, lead: Lead | null = null): Curve {
  const room = toX - x;
  const lines = inLines(label, room, narrow);
  const width = lines ? Math.max(...lines.map(labelWidth)) : 0;
  const start = lines ? x + BEFORE + width : x;
  const reach = room > 0 ? Math.max(12, (toX - start) * 0.5) : Math.max(60, Math.min(220, Math.abs(room) * 0.5 + Math.abs(toY - y) * 0.2));
  const corners = lead && around({ x, y }, { x: start, y }, { x: toX, y: toY }, reach, lead.boxes, lead.ends);
  const path = corners ? pathOf(corners) : `M${x} ${y}H${start}C${start + reach} ${y} ${toX - reach} ${toY} ${toX} ${toY}`;
  const shown = lines && (!corners || (corners[1]?.x ?? 0) >= start); // a wire that turns before has no room for it
  return { path, label: shown ? { x: x + BEFORE, y, width, lines } : null };
}
