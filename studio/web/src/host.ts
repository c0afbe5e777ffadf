// Where the page runs: in a window of its own, with the studio's server behind it, or in a cell of a notebook, with the kernel behind it.

import type { Line } from "./logic/connection";

export interface Host {
  document: string | null; // the one page of a cell; a window opens many
  fetch(path: string, given?: { method?: string; body?: string }): Promise<Response>;
  connect(document: string, client: string): Line;
}

declare global {
  interface Window {
    rowgradHost?: Host;
  }
}

const SERVER: Host = {
  document: null,
  fetch: (path, given = {}) => fetch(path, { credentials: "same-origin", ...given, ...(given.body === undefined ? {} : { headers: { "Content-Type": "application/json" } }) }),
  connect(document, client) {
    const address = new URL(`/ws?${new URLSearchParams({ document, client })}`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    return new WebSocket(address) as unknown as Line;
  },
};

export const host: Host = (typeof window === "undefined" ? undefined : window.rowgradHost) ?? SERVER;
export const inCell = host.document !== null;
