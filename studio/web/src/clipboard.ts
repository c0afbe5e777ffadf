// Copying, cutting and pasting: blocks as page files. What is in a collapsed group only the server knows.

import { gesture } from "./line";
import { GRID, type Place } from "./logic/arrange";
import { parse } from "./logic/exact";
import { pageFile } from "./logic/page";
import { say, store } from "./store";
import { removeSelected, select, selectedBlocks } from "./studio";

export async function paste(page: { blocks: unknown[] }, at: Place): Promise<void> {
  pasted(await gesture("paste", { blocks: page.blocks, at }));
}

function pasted(ok: Record<string, unknown> | null): void {
  if (!ok) return;
  const ids = ok["blocks"] as string[];
  select(ids);
  say(`Pasted ${ids.length === 1 ? ids[0] : `${ids.length} blocks`}.`);
}

export const copied = (ids = selectedBlocks()): string => pageFile(store.get().page, ids.filter((id) => !isGroup(id)));

const isGroup = (id: string): boolean => store.get().page.blocks[id]?.op === "Group";

// What was copied last, for menus: a browser lets a page read its clipboard only if the user agrees. What is in a collapsed group only the
// server knows: `whole` has it when that has answered, and stands for `text`, which the clipboard was given at once.
let clipboard: { text: string; whole: Promise<string> } = { text: "", whole: Promise.resolve("") };

/** Copies blocks and groups; gives the text that the clipboard can have at once. */
export function copy(ids = selectedBlocks()): string {
  const text = copied(ids);
  const whole = ids.some(isGroup) ? gesture("copy", { blocks: ids }).then((ok) => String(ok?.["page"] ?? text)) : Promise.resolve(text);
  clipboard = { text, whole };
  void whole.then((found) => (found === text ? undefined : navigator.clipboard?.writeText(found).catch(() => undefined)));
  say(`Copied ${ids.length === 1 ? ids[0] : counted(ids.length)}.`);
  return text;
}

export async function copySelected(): Promise<void> {
  const text = copy();
  await navigator.clipboard?.writeText(text).catch(() => undefined);
}

export async function cutSelected(): Promise<void> {
  const count = selectedBlocks().length;
  await copySelected();
  await removeSelected();
  say(`Cut ${counted(count)}.`);
}

const counted = (count: number): string => (count === 1 ? "1 block" : `${count} blocks`);

export async function pasteCopied(at: Place): Promise<void> {
  const text = (await navigator.clipboard?.readText?.().catch(() => "")) || clipboard.text;
  await pasteText(text, at);
}

export async function pasteText(given: string, at: Place): Promise<void> {
  const text = given === clipboard.text ? await clipboard.whole : given;
  try {
    const page = parse(text) as { rowgrad_page?: number; blocks?: unknown[]; groups?: unknown[] } | null;
    if (!page?.rowgrad_page || !Array.isArray(page.blocks)) throw new Error();
    await (page.groups?.length ? pasteWhole(text, at) : paste({ blocks: page.blocks }, at));
  } catch {
    if (text) say("The clipboard does not hold a page.", true);
  }
}

async function pasteWhole(page: string, at: Place): Promise<void> {
  pasted(await gesture("paste_page", { page, at }));
}

/** A copy of blocks and groups, its upper left corner at a place. */
export async function copyTo(ids: string[], at: Place): Promise<void> {
  if (!ids.some(isGroup)) return paste(parse(copied(ids)) as unknown as { blocks: unknown[] }, at);
  const ok = await gesture("copy", { blocks: ids });
  if (ok) await pasteWhole(String(ok["page"]), at);
}

export async function duplicate(ids = selectedBlocks()): Promise<void> {
  const { page } = store.get();
  if (!ids.length) return;
  const corner = (axis: 0 | 1): number => Math.min(...ids.map((id) => page.blocks[id]?.at[axis] ?? 0));
  await copyTo(ids, [corner(0) + 4 * GRID, corner(1) + 4 * GRID]);
}
