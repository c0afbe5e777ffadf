// The page's end of the line: what the server tells goes into the store; commands go out, and what is refused is told and shown.

import { api } from "./api";
import { host, inCell } from "./host";
import { roomsBelow } from "./logic/arrange";
import { cardHeight, cardWidth } from "./logic/card";
import { Connection, Refused } from "./logic/connection";
import { edgesOf, nodesOf, withFrames } from "./logic/flow";
import { applyPage, applyResults, EMPTY_PAGE, pageFile, type PageState } from "./logic/page";
import { applyProgress, applyRuns } from "./logic/runs";
import { wiresOf } from "./logic/wires";
import type { Problem, ServerEvent } from "./protocol";
import { hush, operatorOf, say, store, type State } from "./store";
import { open, showTab } from "./tabs";
import { keptFolds } from "./folds";
import { keepView } from "./view";

let connection: Connection | null = null;

export const isMany = (op: string, pin: string): boolean => store.get().operators.get(op)?.inputs.find((item) => item.name === pin)?.many ?? false;

/** How high results may be: others may stand close below. */
function roomsOf({ order, blocks }: PageState, state: State): Record<string, number> {
  const boxes = order.flatMap((id) => {
    const block = blocks[id];
    const operator = operatorOf(block, state);
    return block ? [{ id, x: block.at[0], y: block.at[1], width: cardWidth(operator), height: cardHeight(block, operator) }] : [];
  });
  return roomsBelow(boxes);
}

function hear(event: ServerEvent): void {
  if (event.event === "page") {
    store.set((state) => {
      const page = applyPage(state.page, event);
      const known = page.blocks === state.page.blocks && page.order === state.page.order;
      const wires = known ? state.wires : wiresOf(page.blocks, page.order, isMany);
      const nodes = withFrames(nodesOf(state.nodes, page, (block) => cardHeight(block, operatorOf(block, state))), page);
      const selected = state.selected && page.blocks[state.selected] ? state.selected : null;
      return { page, wires, nodes, edges: edgesOf(state.edges, wires), selected, rooms: known ? state.rooms : roomsOf(page, state) };
    });
  } else if (event.event === "results") {
    store.set((state) => ({ results: applyResults(state.results, event) }));
  } else if (event.event === "progress") {
    store.set((state) => ({ progress: event, runs: applyProgress(state.runs, event) }));
  } else if (event.event === "runs") {
    store.set((state) => ({ runs: applyRuns(event.whole ? [] : state.runs, event), before: event.before }));
  } else if (event.event === "disk") {
    store.set({ disk: true });
    say("The file has changed on disk.", true);
  } else if (event.event === "saved") {
    store.set((state) => ({ disk: false, page: { ...state.page, path: event.path } }));
  }
}

export function join(document: string): void {
  connection?.close();
  keepView();
  store.set({ document, page: EMPTY_PAGE, wires: [], results: {}, progress: null, obstacles: [], folded: keptFolds(document), runs: [], hiddenRuns: new Set(), before: false, sliders: [], evaluated: {}, nodes: [], edges: [], selected: null, wiring: null, pinErrors: {}, refused: {}, rooms: {}, lit: {}, fed: {}, disk: false, lost: null });
  const client = inCell ? "" : crypto.randomUUID(); // numbers of commands begin anew with each; a stored name would be inherited by a duplicated tab
  if (!inCell) {
    const here = new URL(location.href);
    here.search = `?${new URLSearchParams({ document })}`;
    history.replaceState(null, "", here);
  }
  connection = new Connection({
    connect: () => host.connect(document, client),
    event: hear,
    state: (state) => {
      const before = store.get().connection;
      store.set(state === "online" ? { connection: state, lost: null } : { connection: state });
      if (state === "offline" && before === "offline") void api.isKnown().then((known) => known === false && store.set({ lost: LOCKED }));
      if (state === "offline" && before === "online") say("The connection to the studio is lost; trying again.", true);
      if (state === "online" && before === "offline") say("Connected again.");
    },
    lost: () => void bringBack(),
    later: (milliseconds, what) => {
      const timer = setTimeout(what, milliseconds);
      return () => clearTimeout(timer);
    },
  });
}

const FORGOTTEN = "The kernel does not answer. If it was restarted, run the cell again; if it is busy, this page continues when it is ready.";
const LOCKED = "The studio was restarted and has a new key. Open the address that it printed in another tab; this page then continues.";

/** The server has forgotten the page: give it the one that is on the screen, so that nothing is lost. */
async function bringBack(): Promise<void> {
  const { page, document } = store.get();
  if (!document) return;
  if (inCell) {
    store.set({ lost: FORGOTTEN });
    return;
  }
  if (page === EMPTY_PAGE) {
    if (await open({ new: true })) say("That page no longer exists; this is a new one.", true);
    return;
  }
  try {
    showTab(await api.document({ data: base64(new TextEncoder().encode(pageFile(page))), name: `${page.name || "page"}.page.json` }), document);
    say("The studio was restarted; the page was restored.");
  } catch {
    store.set({ lost: LOCKED });
  }
}

export const retry = (): void => connection?.retry();
export const unanswered = (): number => connection?.waiting ?? 0;

export async function send(what: string, given: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
  if (!connection) throw new Error("No page is open yet.");
  const { n } = store.get().said;
  const ok = await connection.send(what, given);
  if (store.get().said.n === n) hush();
  return ok;
}

/** Sends a command; an error is told, and shown at its pin. Gives null where it was refused. */
export async function gesture(what: string, given: Record<string, unknown> = {}): Promise<Record<string, unknown> | null> {
  try {
    return await send(what, given);
  } catch (error) {
    complain(error);
    return null;
  }
}

export function complain(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof Refused && error.problem.block) showAtPin(error.problem);
  say(message, true);
}

let forgetting: ReturnType<typeof setTimeout> | undefined;

/** Errors of gestures stay at the pin until the next gesture there, or for a while. */
export function showAtPin({ block, pin, message }: Pick<Problem, "block" | "pin" | "message">): void {
  store.set({ pinErrors: { [`${block}:${pin ?? ""}`]: message } });
  clearTimeout(forgetting);
  forgetting = setTimeout(() => store.set({ pinErrors: {} }), 15_000);
}

export const clearPinErrors = (): void => {
  if (Object.keys(store.get().pinErrors).length) store.set({ pinErrors: {} });
};

export const base64 = (bytes: Uint8Array): string => {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
};
