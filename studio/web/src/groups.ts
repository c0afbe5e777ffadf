// What users do with groups: each function is one gesture.

import { complain, gesture, send } from "./line";
import type { Place } from "./logic/arrange";
import { Refused } from "./logic/connection";
import type { Source } from "./protocol";
import { openDialog, say, store } from "./store";
import { api } from "./api";
import { removeBlocks, select, selectedBlocks } from "./studio";
import { fitIfHidden } from "./view";

export { removeBlocks };

const WORDS = { open: "Opened", collapse: "Collapsed", ungroup: "Ungrouped", detach: "Detached" };

export async function onGroup(what: keyof typeof WORDS, group: string): Promise<void> {
  if (!(await gesture(what, { group }))) return;
  say(`${WORDS[what]} ${group}.`);
  if (what === "collapse") select([group]);
  if (what === "open") setTimeout(fitIfHidden, 100); // its blocks may stand outside of what is seen
}

export async function groupSelected(): Promise<void> {
  const blocks = selectedBlocks();
  if (!blocks.length) return say("Select the blocks of the group first.", true);
  const ok = await gesture("group", { blocks });
  if (!ok) return;
  const name = String(ok["group"]);
  say(`Grouped ${blocks.length === 1 ? blocks[0] : `${blocks.length} blocks`} as ${name}.`);
  openDialog({ kind: "rename", block: name });
}

/** The groups that the selection names or is in, innermost first. */
export function selectedGroups(): string[] {
  const { page } = store.get();
  const paths = selectedBlocks().map((id) => (page.groups.some((group) => group.name === id) ? id : (page.blocks[id]?.group ?? "")));
  return [...new Set(paths.filter(Boolean))];
}

export async function ungroupSelected(): Promise<void> {
  const [group] = selectedGroups();
  if (group) await onGroup("ungroup", group);
}

export async function saveGroup(group: string, overwrite = false): Promise<void> {
  try {
    const ok = await send("save_group", { group, ...(overwrite ? { overwrite } : {}) });
    say(`Saved ${group} as ${String(ok["path"])}; it is in the palette now.`);
    await loadOwn();
  } catch (error) {
    if (error instanceof Refused && error.problem.code === "exists") {
      openDialog({ kind: "ask", title: "Overwrite your block?", text: error.message, yes: "Overwrite", answer: (yes) => yes && void saveGroup(group, true) });
    } else complain(error);
  }
}

/** The blocks of one's own: pages in the folder `blocks`. */
export async function loadOwn(): Promise<void> {
  const { pages } = await api.files();
  store.set({ own: pages.filter((page) => page.path.startsWith("blocks/")).sort((left, right) => left.name.localeCompare(right.name)) });
}

async function placed(what: string, given: Record<string, unknown>): Promise<void> {
  const ok = await gesture(what, given);
  if (!ok) return;
  select([String(ok["group"])]);
  say(`Added ${String(ok["group"])}.`);
}

export const insertOwn = (path: string, at: Place): Promise<void> => placed("insert", { path, at });
export const copyGroup = (group: string, at: Place): Promise<void> => placed("copy_group", { group, at });
export const setGroup = (group: string, set: Record<string, Source>): Promise<unknown> => send("set_group", { group, set });

export async function train(loss: string, variables: string[], optimizer: string, settings: Record<string, Source>): Promise<void> {
  const ok = await send("train", { loss, variables, optimizer, settings });
  select([String(ok["group"])]);
  say(`Added ${String(ok["group"])}: run a loop to train.`);
}
