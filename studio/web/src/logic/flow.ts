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
  const nodes = page.order.filter((id) => page.blocks[id]).map((id) => nodeOf(old.get(id), "block", id, (page.blocks[id] as Block).at, id, heightOf(page.blocks[id] as Block)));
  nodes.push(...page.notes.map((note: Note) => nodeOf(old.get(noteNode(note.id)), "note", noteNode(note.id), note.at, `Note ${note.id}`, 60)));
  return nodes.length === before.length && nodes.every((node, i) => node === before[i]) ? before : nodes;
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
