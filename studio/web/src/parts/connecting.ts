// Wires that are dragged: a new one from a pin, or the end of one that is there, taken by its pin or by the end itself.

import type { Connection, Edge, FinalConnectionState } from "@xyflow/react";
import { CARD, type Place } from "../logic/arrange";
import { endOf, nameOf, type Wire } from "../logic/wires";
import { openDialog, say, store } from "../store";
import { connect, endWire, removeWire, rewire, startWire } from "../studio";
import { placeAt } from "../view";

interface Start {
  nodeId: string | null;
  handleId: string | null;
  handleType: "source" | "target" | null;
}

let begun: Promise<{ op: string; pin: string }[]> = Promise.resolve([]);
let taken: { wire: Wire; end: "source" | "target" } | null = null; // by its end, near the pin

/** The end of a wire is taken: `fixed` is the kind of pin at its other end. */
export function onReconnectStart(_: unknown, edge: Edge, fixed: "source" | "target"): void {
  taken = { wire: edge.data as unknown as Wire, end: fixed === "source" ? "target" : "source" };
}

export function onConnectStart(_: unknown, { nodeId, handleId, handleType }: Start): void {
  const name = `${nodeId}:${handleId}`;
  if (handleType === "source") {
    begun = startWire(name, "output", "mouse", taken?.wire);
    return;
  }
  // The pin that a wire ends at gives the wire's end; one without begins a wire backwards.
  const held = taken ? null : store.get().wires.findLast((wire) => nameOf(wire.target) === name);
  begun = held ? startWire(nameOf(held.source), "output", "mouse", held) : startWire(name, "input", "mouse", taken?.wire);
}

export function onConnect({ source, sourceHandle, target, targetHandle }: Connection): void {
  void connect(`${source}:${sourceHandle}`, `${target}:${targetHandle}`);
}

/** The end of a wire came to another pin: of the same kind as before, React Flow sees to that. */
export function onReconnect(_: Edge, { source, sourceHandle, target, targetHandle }: Connection): void {
  if (!taken) return;
  const [from, to] = [`${source}:${sourceHandle}`, `${target}:${targetHandle}`];
  if (taken.end === "source") void (from !== nameOf(taken.wire.source) && connect(from, to));
  else if (to !== nameOf(taken.wire.target)) void rewire(taken.wire, to);
}

/** The input under a point. While a wire is dragged backwards React Flow hides inputs from the pointer, so that they are looked for. */
function inputAt(x: number, y: number): string | undefined {
  const found = [...document.querySelectorAll<HTMLElement>('[data-pin^="input "]')].find((pin) => {
    const box = pin.getBoundingClientRect();
    return x >= box.left && x <= box.right && y >= box.top && y <= box.bottom;
  });
  return found?.dataset["pin"]?.slice("input ".length);
}

/** A wire was let go: on a pin it is connected; on a card the first pin that fits takes it; on empty space a new block can. */
export async function onConnectEnd(event: MouseEvent | TouchEvent, state: FinalConnectionState): Promise<void> {
  const wiring = store.get().wiring;
  const byEnd = taken;
  taken = null;
  const point = "changedTouches" in event ? event.changedTouches[0] : event;
  if (!wiring || !point) return endWire();
  const under = document.elementFromPoint(point.clientX, point.clientY);
  const pin = inputAt(point.clientX, point.clientY);
  const held = byEnd ? null : wiring.held;
  if (held && pin) {
    endWire();
    if (pin !== nameOf(held.target)) await rewire(held, pin);
    return;
  }
  if (state.toHandle) return endWire(); // React Flow has told
  const card = under?.closest<HTMLElement>(".react-flow__node")?.dataset["id"];
  const operators = await begun;
  const fits = [...(store.get().wiring?.fits ?? [])];
  endWire();
  const moved = wiring.held && byEnd?.end !== "source" ? wiring.held : null; // its end, that is
  if (card) {
    if (card === endOf(wiring.from).block || card === moved?.target.block) return;
    const missing = store.get().page.blocks[card]?.missing ?? [];
    const here = fits.filter((name) => endOf(name).block === card).sort((left, right) => Number(missing.includes(endOf(right).pin)) - Number(missing.includes(endOf(left).pin)));
    if (!here[0]) say(`No pin of ${card} takes ${wiring.from}.`, true);
    else await (moved ? rewire(moved, here[0]) : wiring.kind === "output" ? connect(wiring.from, here[0]) : connect(here[0], wiring.from));
  } else if (under?.closest(".react-flow__pane")) {
    if (wiring.held) return void removeWire(wiring.held.id);
    const [x, y] = placeAt(point.clientX, point.clientY);
    const at: Place = wiring.kind === "output" ? [x, y - 50] : [x - CARD, y - 50];
    openDialog({ kind: "add", adding: { at, wire: { from: wiring.from, kind: wiring.kind, operators } } });
  }
}
