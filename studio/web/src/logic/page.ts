// The page as the browser knows it: what the server told, change by change. Everything that stayed the same keeps its identity, so that
// only what has changed is drawn again.

import type { Block, Group, Note, PageEvent, Problem, ProgressEvent, Result, ResultsEvent } from "../protocol";
import { stringify } from "./exact";

export interface PageState {
  revision: number;
  name: string;
  path: string | null;
  dirty: boolean;
  undo: string | null;
  redo: string | null;
  blocks: Record<string, Block>;
  order: string[];
  groups: Group[];
  notes: Note[];
  problems: Problem[];
}

export const EMPTY_PAGE: PageState = { revision: -1, name: "", path: null, dirty: false, undo: null, redo: null, blocks: {}, order: [], groups: [], notes: [], problems: [] };

const same = (left: unknown, right: unknown): boolean => left === right || stringify(left) === stringify(right);

/** `before` with the changes of `after`: null takes away; entries that are equal stay the ones they were. */
export function changed<T>(before: Record<string, T>, after: Record<string, T | null>, whole: boolean): Record<string, T> {
  const result: Record<string, T> = whole ? {} : { ...before };
  let different = whole && Object.keys(before).length !== Object.keys(after).length;
  for (const [id, entry] of Object.entries(after)) {
    const old = before[id];
    if (entry === null) {
      different ||= id in before;
      delete result[id];
    } else if (old !== undefined && same(old, entry)) {
      result[id] = old;
    } else {
      result[id] = entry;
      different = true;
    }
  }
  return different ? result : before;
}

export function applyPage(before: PageState, event: PageEvent): PageState {
  const { event: _, whole, blocks, order, groups, notes, problems, ...rest } = event;
  return {
    ...rest,
    blocks: changed(before.blocks, blocks, whole),
    order: same(before.order, order) ? before.order : order,
    groups: same(before.groups, groups) ? before.groups : groups,
    notes: same(before.notes, notes) ? before.notes : notes,
    problems: same(before.problems, problems) ? before.problems : problems,
  };
}

export function applyResults(before: Record<string, Result>, event: ResultsEvent): Record<string, Result> {
  return changed(before, event.blocks, event.whole);
}

/** A page file with these blocks, as copied to the clipboard and kept when the server has lost the page. */
export function pageFile(page: PageState, ids: string[] = page.order): string {
  const chosen = new Set(ids);
  const blocks = page.order.filter((id) => chosen.has(id)).map((id) => record(page.blocks[id] as Block));
  const notes = page.notes.filter((note) => chosen.has(note.id) || ids === page.order).map(({ text, at }) => ({ text, at }));
  return stringify({ rowgrad_page: 1, name: page.name, blocks, ...(notes.length ? { notes } : {}) });
}

/** A block as it stands in a page file. */
export function record({ id, op, inputs, attrs, at }: Block): Record<string, unknown> {
  return { id, op, ...(Object.keys(inputs).length ? { inputs } : {}), ...(Object.keys(attrs).length ? { attrs } : {}), at };
}

/** What a run came to, in a sentence. */
export function outcome(results: Record<string, Result>): string {
  const counts = { done: 0, failed: 0, skipped: 0, waiting: 0 };
  for (const { status } of Object.values(results)) counts[status]++;
  const parts = [`${counts.done} done`];
  if (counts.failed) parts.push(`${counts.failed} failed`);
  if (counts.skipped) parts.push(`${counts.skipped} skipped`);
  if (counts.waiting) parts.push(`${counts.waiting} not run`);
  return parts.join(", ");
}

/** Where a run stands. */
export function progressText({ step, steps, done, total, block }: ProgressEvent): string {
  const parts = [];
  if (steps > 1) parts.push(`step ${Math.min(step, steps)} of ${steps}`);
  if (total > 0) parts.push(`block ${Math.min(done + 1, total)} of ${total}`);
  if (block) parts.push(block);
  return parts.join(", ") || "running";
}
