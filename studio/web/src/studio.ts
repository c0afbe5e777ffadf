// What users can do: each function is one gesture and sends one command. The server answers with what has changed; nothing is changed
// here in advance, except where things stand on the canvas.

import { api } from "./api";
import { host, inCell } from "./host";
import { base64, clearPinErrors, complain, gesture, isMany, join, send, showAtPin } from "./line";
import type { Place } from "./logic/arrange";
import { Refused } from "./logic/connection";
import { noteOf, placedAnew } from "./logic/flow";
import { outcome, type PageState } from "./logic/page";
import { endOf, nameOf, withoutWire, type Wire } from "./logic/wires";
import type { Source } from "./protocol";
import { openDialog, say, store } from "./store";
import { keptTabs, open, showTab } from "./tabs";

// ——— Opening and keeping

export async function start(): Promise<void> {
  const given = new URLSearchParams(inCell ? "" : location.search);
  const [document, path] = [host.document ?? given.get("document"), given.get("open")];
  const opened = document ? Promise.resolve(document) : api.document(path ? { open: path } : { new: true }); // while the catalogue comes
  opened.catch(() => undefined);
  const catalogue = await api.catalogue();
  store.set({ catalogue, operators: new Map(catalogue.operators.map((operator) => [operator.name, operator])) });
  afterFirstPage(() => void api.files().then(({ pages }) => store.set({ own: pages.filter((page) => page.path.startsWith("blocks/")) }), () => undefined));
  if (host.document) {
    join(host.document);
    return;
  }
  const tabs = keptTabs();
  if (document && tabs.some((tab) => tab.document === document)) store.set({ tabs });
  try {
    showTab(await opened);
  } catch (error) {
    await open({ new: true });
    complain(error);
  }
}

/** Does what can wait until there is something to see. */
function afterFirstPage(what: () => void): void {
  const end = store.subscribe(() => {
    if (store.get().page.revision < 0) return;
    end();
    what();
  });
}

export const isData = (name: string): boolean => /\.(csv|npy|npz|parquet|arrow|feather)$/i.test(name);

/** A file that was dropped or picked: data is kept beside the page, and its columns can be chosen; all else is a page. */
export async function openFile(file: File, at: Place | null = null): Promise<void> {
  const { document } = store.get();
  if (isData(file.name) && document) {
    try {
      openDialog({ kind: "data", path: await api.keepData(document, file.name, base64(new Uint8Array(await file.arrayBuffer()))), at });
    } catch (error) {
      complain(error);
    }
    return;
  }
  if (inCell) return say("A cell shows one page. Open others in Python: Page.load(path).", true);
  if (await open({ data: base64(new Uint8Array(await file.arrayBuffer())), name: file.name })) say(`Opened ${file.name}.`);
}

export async function save(path?: string, overwrite = false): Promise<void> {
  if (!path && !store.get().page.path) {
    openDialog({ kind: "save as" });
    return;
  }
  try {
    const ok = await send("save", { ...(path ? { path } : {}), ...(overwrite ? { overwrite } : {}) });
    store.set({ disk: false });
    say(`Saved ${String(ok["path"] ?? path ?? "")}.`);
  } catch (error) {
    const code = error instanceof Refused ? error.problem.code : "";
    if (code === "exists" || code === "changed-on-disk") {
      openDialog({
        kind: "ask",
        title: code === "exists" ? "Overwrite the file?" : "Overwrite the changes on disk?",
        text: (error as Error).message,
        yes: "Overwrite",
        answer: (yes) => yes && void save(path, true),
      });
    } else complain(error);
  }
}

export async function reload(): Promise<void> {
  if (await gesture("reload")) {
    store.set({ disk: false });
    say("Read the file again.");
  }
}

export const keepMine = (): void => store.set({ disk: false });
export const setTitle = (name: string): Promise<unknown> => send("title", { name });

const EXPORTED: Record<string, string> = { py: "the Python script", svg: "the SVG picture", png: "the PNG picture", pb: "the GraphDef", pbtxt: "the GraphDef", "page.json": "the page file" };

export async function exportAs(as: string): Promise<void> {
  const { document, page } = store.get();
  if (!document) return;
  store.set({ busy: `Writing ${EXPORTED[as] ?? as} …` });
  try {
    say(`Exported ${await api.download(api.export(document, as), `${page.name || "page"}.${as}`)}.`);
  } catch (error) {
    complain(error);
  } finally {
    store.set({ busy: null });
  }
}

export async function downloadOutput(block: string, pin: string, as: "npy" | "csv"): Promise<void> {
  const { document } = store.get();
  if (!document) return;
  try {
    say(`Downloaded ${await api.download(api.output(document, block, pin, as), `${block}.${pin}.${as}`)}.`);
  } catch (error) {
    complain(error);
  }
}

// ——— Blocks

export async function addBlock(op: string, at: Place, more: { connect?: Record<string, string>; example?: boolean } = {}): Promise<string | null> {
  const operator = store.get().operators.get(op);
  if (!operator) return null;
  const given = more.example ? { inputs: operator.example.inputs, attrs: operator.example.attrs } : {};
  const ok = await gesture("add", { op, at, ...given, ...(more.connect ? { connect: more.connect } : {}) });
  if (!ok) return null;
  const id = String(ok["block"]);
  say(`Added ${id}.`);
  select([id]);
  return id;
}

export function select(ids: string[]): void {
  const chosen = new Set(ids);
  store.set(({ nodes, edges, page }) => ({
    nodes: nodes.map((node) => (Boolean(node.selected) === chosen.has(node.id) ? node : { ...node, selected: chosen.has(node.id) })),
    edges: edges.map((edge) => (edge.selected ? { ...edge, selected: false } : edge)),
    selected: ids.find((id) => page.blocks[id]) ?? null,
    shownOperator: null,
  }));
}

export const selection = (): string[] => store.get().nodes.filter((node) => node.selected).map((node) => node.id);
export const selectedBlocks = (): string[] => selection().filter((id) => store.get().page.blocks[id]);

/** Deletes what is selected: blocks, notes, or wires. */
export async function removeSelected(): Promise<void> {
  const blocks = selectedBlocks();
  const notes = selection().flatMap((id) => noteOf(id) ?? []);
  const wires = store.get().edges.filter((edge) => edge.selected);
  if (blocks.length + notes.length) {
    if (await gesture("remove", { blocks, notes })) say(blocks.length + notes.length === 1 ? `Deleted ${blocks[0] ?? "a note"}.` : `Deleted ${blocks.length + notes.length} blocks and notes.`);
  } else for (const edge of wires) await removeWire(edge.id);
}

export const removeBlocks = (blocks: string[]): Promise<unknown> => gesture("remove", { blocks }).then((ok) => ok && say(`Deleted ${blocks.join(", ")}.`));

export const change = (block: string, set: Record<string, Source>, also: string[] = []): Promise<Record<string, unknown>> => send("change", { block, set, ...(also.length ? { also } : {}) });

export async function rename(block: string, name: string): Promise<void> {
  await send("rename", { block, name });
  say(`${block} is now ${name}.`);
  select([name]);
}

/** Puts what was dragged where it was dropped; one step of undo. */
export async function drop(places: Record<string, Place>): Promise<void> {
  const blocks: Record<string, Place> = {};
  const notes: Record<string, Place> = {};
  for (const [id, at] of Object.entries(places)) {
    const note = noteOf(id);
    if (note === null) blocks[id] = at;
    else notes[note] = at;
  }
  if (!(await gesture("move", { places: blocks, notes }))) store.set(({ nodes, page }) => ({ nodes: placedAnew(nodes, page) }));
}

export const tidy = async (): Promise<boolean> => {
  const blocks = selectedBlocks();
  const done = await gesture("tidy", blocks.length > 1 ? { blocks } : {});
  if (done) say("Tidied up.");
  return done !== null;
};

export async function changeNote(id: string | null, text?: string, at?: Place): Promise<string | null> {
  const note = store.get().page.notes.find((item) => item.id === id);
  const ok = await gesture("note", { ...(id ? { id } : {}), text: text ?? note?.text ?? "", at: at ?? note?.at ?? [0, 0] });
  return ok ? String(ok["note"] ?? "") : null;
}

export async function undo(): Promise<void> {
  const ok = await gesture("undo");
  if (ok) say(`Undone: ${String(ok["label"] ?? "")}`);
}

export async function redo(): Promise<void> {
  const ok = await gesture("redo");
  if (ok) say(`Done again: ${String(ok["label"] ?? "")}`);
}

// ——— Wires

/** Draws a wire; where it is refused, the reason stands at the pin. */
export async function connect(source: string, target: string): Promise<boolean> {
  clearPinErrors();
  try {
    await send("connect", { source, target });
    say(`Wired ${source} to ${target}.`);
    return true;
  } catch (error) {
    const { block, pin } = endOf(target);
    showAtPin({ block, pin, message: error instanceof Error ? error.message : String(error) });
    say(`Not wired: ${error instanceof Error ? error.message : String(error)}`, true);
    return false;
  }
}

/** Takes the end of a wire to another input; where it is refused, the wire stays. */
export async function rewire(wire: Wire, to: string): Promise<void> {
  clearPinErrors();
  try {
    await send("rewire", { source: nameOf(wire.source), target: nameOf(wire.target), to });
    say(`The wire from ${nameOf(wire.source)} now leads to ${to}.`);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    showAtPin({ ...endOf(to), message });
    say(`Not wired: ${message}`, true);
  }
}

export async function reroute(wire: Wire, at: Place): Promise<void> {
  const ok = await gesture("reroute", { source: nameOf(wire.source), target: nameOf(wire.target), at });
  if (!ok) return;
  select([String(ok["block"])]);
  say(`The wire to ${nameOf(wire.target)} leads over ${String(ok["block"])}.`);
}

export async function removeWire(id: string): Promise<void> {
  const wire = store.get().wires.find((item) => item.id === id);
  if (!wire) return;
  const { block, pin } = wire.target;
  const holder = store.get().page.blocks[block];
  const many = holder && isMany(holder.op, pin);
  const ok = many ? await gesture("change", { block, set: { [pin]: withoutWire(holder.inputs[pin], wire.position) } }) : await gesture("disconnect", { target: nameOf(wire.target) });
  if (ok) say(`Removed the wire to ${nameOf(wire.target)}.`);
}

export async function disconnect(target: string): Promise<void> {
  if (await gesture("disconnect", { target })) say(`Removed the value of ${target}.`);
}

/** A wire begins: asks what fits, once. Gives the operators that could be at its other end. */
export async function startWire(from: string, kind: "output" | "input", by: "mouse" | "keyboard", held?: Wire): Promise<{ op: string; pin: string }[]> {
  clearPinErrors();
  store.set({ wiring: { from, kind, by, fits: null, ...(held ? { held } : {}) } });
  try {
    const ok = await send("fits", kind === "output" ? { source: from } : { target: from });
    const fits = new Set(ok["pins"] as string[]);
    store.set(({ wiring }) => (wiring?.from === from ? { wiring: { ...wiring, fits } } : {}));
    if (by === "keyboard") {
      const wanted = kind === "output" ? "an input" : "an output";
      say(`Wiring from ${from}: choose ${wanted}; Tab through the ${fits.size} pins that fit; Enter connects; Escape cancels.`);
    }
    return ok["operators"] as { op: string; pin: string }[];
  } catch (error) {
    complain(error);
    return [];
  }
}

export const endWire = (): void => {
  if (store.get().wiring) store.set({ wiring: null });
};

// ——— Running

export async function running(what: string, given: Record<string, unknown>, label: string): Promise<Record<string, unknown> | null> {
  const ok = await gesture(what, what === "resume" ? { run: given["run"] } : given);
  if (!ok) return null;
  const { results } = store.get();
  const asked = Number(given["steps"] ?? 0);
  const taken = Number(ok["steps"] ?? asked);
  if (what === "step") say(ok["block"] ? `Ran ${String(ok["block"])}.` : "Everything is up to date.");
  else if (ok["paused"]) say(`Paused after step ${taken} of ${asked}: change what you like, then resume.`);
  else if (taken < asked) say(`${label} ended after ${taken}: ${outcome(results)}.`);
  else say(`${label} finished: ${outcome(results)}.`);
  return ok;
}

export const run = async (): Promise<void> => void (await running("run", {}, "Run"));
export const runTo = async (block: string): Promise<void> => void (await running("run_to", { block }, `Run to ${block}`));
export const step = async (): Promise<void> => void (await running("step", {}, "Step"));

export const stop = async (): Promise<void> => {
  if (await gesture("stop")) say("Stopped.");
};
export const reset = async (): Promise<void> => {
  if (await gesture("reset")) say("Reset results and variables.");
};
export const feed = (block: string, value: Source): Promise<Record<string, unknown>> => send("feed", { block, value });

export async function addGradients(y: string, xs: string[]): Promise<void> {
  const group = String((await send("add_gradients", { y, xs }))["group"]);
  select([group]);
  say(`Added ${group}: the gradients of ${y}.`);
}

export async function checkGradients(y: string, xs: string[]): Promise<string> {
  return String((await send("check_gradients", { y, xs }))["text"] ?? "");
}

// ——— Rows that a gradient came from

const origins = new Map<string, Promise<Record<string, number[]>>>();
let wanted = "";

export async function light(block: string, pin: string, row: number | null): Promise<void> {
  const { document, page } = store.get();
  if (page.blocks[block]?.op === "Group") return;
  const key = row === null ? "" : `${document} ${page.revision} ${block}:${pin} ${row}`;
  wanted = key;
  if (row === null || !document) {
    if (Object.keys(store.get().lit).length) store.set({ lit: {} });
    return;
  }
  if (!origins.has(key)) {
    if (origins.size > 500) origins.clear();
    origins.set(key, api.rows(document, block, pin, row).then((found) => found.rows, () => ({})));
  }
  const rows = await (origins.get(key) as Promise<Record<string, number[]>>);
  if (wanted === key) store.set({ lit: litBy(page, block, rows) });
}

/** The rows that light up: at the pins themselves, and in the results of what is wired to them. */
function litBy(page: PageState, block: string, rows: Record<string, number[]>): Record<string, number[]> {
  const lit: Record<string, number[]> = {};
  for (const [pin, found] of Object.entries(rows)) {
    lit[`in ${block}:${pin}`] = found;
    const source = page.blocks[block]?.inputs[pin];
    if (typeof source === "string") lit[`out ${nameOf(endOf(source, page.blocks))}`] = found;
  }
  return lit;
}
