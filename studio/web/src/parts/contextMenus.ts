// What the right button offers: on the canvas, on a wire, on a block. The same is in menus and keys; nothing is only here.

import type { Edge, Node } from "@xyflow/react";
import type { MouseEvent as ReactMouseEvent } from "react";
import { noteOf } from "../logic/flow";
import { nameOf, type Wire } from "../logic/wires";
import { openDialog, store } from "../store";
import { fold } from "../folds";
import { groupSelected } from "../groups";
import { copySelected, cutSelected, duplicate, pasteCopied } from "../clipboard";
import { removeSelected, removeWire, reroute, runTo, select, selectedBlocks, tidy } from "../studio";
import { fit, jumpTo, placeAt } from "../view";
import { addNote } from "./Canvas";
import { groupActions } from "./GroupCard";
import type { Item } from "./Menu";

function show(event: MouseEvent | ReactMouseEvent, label: string, items: Item[]): void {
  event.preventDefault();
  const { clientX: x, clientY: y } = event;
  store.set({ menu: { label, items, anchor: { left: x, right: x, top: y, bottom: y } } });
}

export function onPaneMenu(event: MouseEvent | ReactMouseEvent): void {
  const at = placeAt(event.clientX, event.clientY);
  show(event, "Canvas", [
    { label: "Add a block", do: () => openDialog({ kind: "add", adding: { at, wire: null } }), keys: "Ctrl K" },
    { label: "Add a note", do: () => void addNote(at) },
    { label: "Paste", do: () => void pasteCopied(at), keys: "Ctrl V" },
    { label: "Select all", do: () => select(store.get().nodes.map((node) => node.id)), keys: "Ctrl A" },
    { label: "Tidy up", do: () => void tidy().then((done) => done && fit()) },
    { label: "Fit all into view", do: fit, keys: "F" },
  ]);
}

export function onEdgeMenu(event: ReactMouseEvent, edge: Edge): void {
  const wire = edge.data as unknown as Wire;
  const [x, y] = placeAt(event.clientX, event.clientY);
  show(event, `Wire from ${nameOf(wire.source)} to ${nameOf(wire.target)}`, [
    { label: "Remove", do: () => void removeWire(wire.id), keys: "Del" },
    { label: "Add a reroute point", do: () => void reroute(wire, [x - 20, y - 11]) },
    { label: `Go to ${wire.source.block}`, do: () => jumpTo(wire.source.block, wire.source.pin, "output") },
    { label: `Go to ${wire.target.block}`, do: () => jumpTo(wire.target.block, wire.target.pin) },
  ]);
}

export function onNodeMenu(event: ReactMouseEvent, node: Node): void {
  const group = store.get().page.groups.find(({ name }) => name === node.id || name === node.data["name"]);
  if (group && (node.type === "frame" || selectedBlocks().length < 2)) {
    if (node.type !== "frame") select([node.id]);
    return show(event, `Actions of ${group.name}`, [...groupActions(group, group.at), ...(node.type === "frame" ? [] : [{ label: "Group", do: () => void groupSelected(), keys: "Ctrl G" }])]);
  }
  if (!node.selected) select([node.id]);
  const ids = selectedBlocks();
  const [first] = ids;
  const output = first === undefined ? undefined : Object.keys(store.get().page.blocks[first]?.out ?? {})[0];
  const one = ids.length === 1 && first !== undefined;
  show(event, one ? `Actions of ${first}` : "Selection", [
    ...(one ? [{ label: "Run to here", do: () => void runTo(first) }, { label: "Rename", do: () => openDialog({ kind: "rename", block: first }), keys: "F2" }] : []),
    ...(one && output !== undefined ? [{ label: "Add gradients", do: () => openDialog({ kind: "gradients", output: `${first}:${output}` }) }] : []),
    { label: "Group", do: () => void groupSelected(), keys: "Ctrl G", disabled: !first },
    { label: "Cut", do: () => void cutSelected(), keys: "Ctrl X", disabled: !first },
    { label: "Copy", do: () => void copySelected(), keys: "Ctrl C", disabled: !first },
    { label: "Duplicate", do: () => void duplicate(), keys: "Ctrl D", disabled: !first },
    { label: ids.every((id) => store.get().folded.has(id)) ? "Expand the cards" : "Collapse the cards", do: () => fold(ids, !ids.every((id) => store.get().folded.has(id))), disabled: !first },
    ...(noteOf(node.id) !== null ? [{ label: "Edit the note", do: () => store.set({ editingNote: node.id }), keys: "Enter" }] : []),
    { label: "Delete", do: () => void removeSelected(), keys: "Del" },
  ]);
}
