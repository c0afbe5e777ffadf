// Cards of which only the head is shown. That is how one looks at a page, not what is on it: it is kept in this window.

import { say, store } from "./store";

const KEPT = "rowgrad-folded ";

export function keptFolds(document: string): Set<string> {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT + document) ?? "[]") as unknown;
    return new Set(Array.isArray(found) ? found.filter((id) => typeof id === "string") : []);
  } catch {
    return new Set();
  }
}

export function fold(ids: string[], isFolded: boolean): void {
  const { document, folded } = store.get();
  const next = new Set(folded);
  for (const id of ids) {
    if (isFolded) next.add(id);
    else next.delete(id);
  }
  store.set({ folded: next });
  try {
    sessionStorage.setItem(KEPT + document, JSON.stringify([...next]));
  } catch {
    // A browser that keeps nothing unfolds them when the page is loaded again.
  }
  say(`${isFolded ? "Collapsed" : "Expanded"} ${ids.length === 1 ? `the card of ${ids[0]}` : `${ids.length} cards`}.`);
}
