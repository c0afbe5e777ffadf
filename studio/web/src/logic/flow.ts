// Blocks, notes and wires as the nodes and edges of React Flow; what has not changed keeps its identity.

import type { Edge, Node } from "@xyflow/react";
import type { Block, Note } from "../protocol";
import { CARD } from "./arrange";
import type { PageState } from "./page";
import type { Wire } from "./wires";

const isSame = (left: unknown, right: unknown): boolean => left === right;

function nodeOf(old: Node | undefined, type: "block" | "note", id: string, at: [number, number], label: string, height: number): Node {
  const [x, y] = at;
  const told = old?.data["at"] as [number, number] | undefined;
  // What the user is dragging, or has just dropped, stays where it is until the server tells another place.
  if (old && old.ariaLabel === label && told && isSame(told[0], x) && isSame(told[1], y)) return old;
  const fresh: Node = { id, type, position: { x, y }, data: { at }, ariaLabel: label, domAttributes: { "aria-roledescription": type }, initialWidth: CARD, initialHeight: height };
  return old ? { ...old, ...fresh, position: old.dragging ? old.position : fresh.position } : fresh;
}

export const noteNode = (id: string): string => `note ${id}`;
export const noteOf = (node: string): string | null => (node.startsWith("note ") ? node.slice(5) : null);

export function nodesOf(before: Node[], page: PageState, heightOf: (block: Block) => number): Node[] {
  const old = new Map(before.map((node) => [node.id, node]));
  const frames = before.filter((node) => node.type === "frame"); // kept until they are made anew
  const nodes = page.order.filter((id) => page.blocks[id]).map((id) => nodeOf(old.get(id), "block", id, (page.blocks[id] as Block).at, id, heightOf(page.blocks[id] as Block)));
  nodes.push(...page.notes.map((note: Note) => nodeOf(old.get(noteNode(note.id)), "note", noteNode(note.id), note.at, `Note ${note.id}`, 60)));
  nodes.unshift(...frames);
  return nodes.length === before.length && nodes.every((node, i) => node === before[i]) ? before : nodes;
}

export const frameNode = (name: string): string => `group ${name}`;
export const isWithin = (path: string, group: string): boolean => path === group || path.startsWith(`${group}/`);

const AROUND = 16;
const FRAME_HEAD = 34;

/** Frames around the blocks of groups that are open, behind them; outer ones first. */
export function withFrames(nodes: Node[], page: PageState): Node[] {
  const open = page.groups.filter((group) => !group.collapsed);
  const plain = nodes.filter((node) => node.type !== "frame");
  if (!open.length) return plain.length === nodes.length ? nodes : plain;
  const old = new Map(nodes.map((node) => [node.id, node]));
  const frames = open.toSorted((left, right) => left.name.split("/").length - right.name.split("/").length).flatMap(({ name }): Node[] => {
    const inside = plain.filter((node) => node.type === "block" && isWithin(page.blocks[node.id]?.group ?? "", name));
    if (!inside.length) return [];
    const depth = Math.max(0, ...page.groups.filter((group) => !group.collapsed && isWithin(group.name, name)).map((group) => group.name.split("/").length - name.split("/").length));
    const gap = AROUND * (depth + 1);
    const x = Math.min(...inside.map((node) => node.position.x)) - gap;
    const y = Math.min(...inside.map((node) => node.position.y)) - gap - FRAME_HEAD * (depth + 1);
    const width = Math.max(...inside.map((node) => node.position.x + (node.measured?.width ?? CARD))) + gap - x;
    const height = Math.max(...inside.map((node) => node.position.y + (node.measured?.height ?? node.initialHeight ?? 100))) + gap - y;
    const id = frameNode(name);
    const kept = old.get(id);
    if (kept && kept.position.x === x && kept.position.y === y && kept.width === width && kept.height === height) return [kept];
    return [{ ...kept, id, type: "frame", position: { x, y }, width, height, data: { name }, ariaLabel: `Group ${name}`, domAttributes: { "aria-roledescription": "group" }, zIndex: -10, selectable: false, dragHandle: ".frame-head" }];
  });
  return [...frames, ...plain];
}

/** Everything back to where the server has it, after a move that was refused. */
export function placedAnew(nodes: Node[], page: PageState): Node[] {
  const notes = new Map(page.notes.map((note) => [noteNode(note.id), note.at]));
  return nodes.map((node) => {
    const at = page.blocks[node.id]?.at ?? notes.get(node.id);
    return at ? { ...node, position: { x: at[0], y: at[1] }, data: { ...node.data, at } } : node;
  });
}

export function edgesOf(before: Edge[], wires: Wire[]): Edge[] {
  const old = new Map(before.map((edge) => [edge.id, edge]));
  const edges = wires.map((wire): Edge => {
    const kept = old.get(wire.id);
    const data = kept?.data as unknown as Wire | undefined;
    if (kept && data && data.label === wire.label && data.dtype === wire.dtype && data.siblings === wire.siblings && data.isLast === wire.isLast) return kept;
    return {
      ...kept,
      id: wire.id,
      type: "wire",
      source: wire.source.block,
      sourceHandle: wire.source.pin,
      target: wire.target.block,
      targetHandle: wire.target.pin,
      focusable: false,
      data: wire as unknown as Record<string, unknown>,
    };
  });
  return edges.length === before.length && edges.every((edge, i) => edge === before[i]) ? before : edges;
}
