// Which pages are open in this window, and which of them is shown. The server keeps them all; here are only their names.

import { api, type Opening } from "./api";
import { complain, join } from "./line";
import { store, type Tab } from "./store";

const KEPT = "rowgrad-tabs";

function keep(tabs: Tab[]): void {
  store.set({ tabs });
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(tabs));
  } catch {
    // A browser that keeps nothing shows the one page.
  }
}

/** The tabs of this window before it was loaded again. */
export function keptTabs(): Tab[] {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]") as Tab[];
    return Array.isArray(found) ? found.filter((tab) => typeof tab.document === "string") : [];
  } catch {
    return [];
  }
}

/** Shows a document: in its tab, in that of `instead`, or in a new one. */
export function showTab(document: string, instead?: string | null): void {
  const { tabs, document: current } = store.get();
  if (current === document) return;
  const tab: Tab = { document, name: "", dirty: false };
  if (!tabs.some((item) => item.document === document)) keep(instead && tabs.some((item) => item.document === instead) ? tabs.map((item) => (item.document === instead ? tab : item)) : [...tabs, tab]);
  join(document);
}

export function closeTab(document: string): void {
  const { tabs, document: current } = store.get();
  const at = tabs.findIndex((tab) => tab.document === document);
  if (tabs.length < 2 || at < 0) return;
  keep(tabs.filter((tab) => tab.document !== document));
  if (document === current) showTab((tabs[at + 1] ?? tabs[at - 1] as Tab).document);
}

/** Opens a page: in a tab of its own, unless the one that is shown is new and empty. */
export async function open(opening: Opening): Promise<boolean> {
  const { page, document } = store.get();
  const isBlank = page.revision >= 0 && !page.path && !page.dirty && !page.undo && !page.order.length && !page.notes.length;
  try {
    showTab(await api.document(opening), isBlank || page.revision < 0 ? document : null);
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
}

export const newPage = async (): Promise<void> => {
  try {
    showTab(await api.document({ new: true }));
  } catch (error) {
    complain(error);
  }
};

// The name of a tab is that of its page.
store.subscribe(() => {
  const { tabs, document, page } = store.get();
  if (page.revision < 0) return;
  const tab = tabs.find((item) => item.document === document);
  if (tab && (tab.name !== page.name || tab.dirty !== page.dirty)) keep(tabs.map((item) => (item === tab ? { ...tab, name: page.name, dirty: page.dirty } : item)));
});
