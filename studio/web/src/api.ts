// The server's HTTP side: catalogue, files, documents, downloads.

import { host } from "./host";
import type { Catalogue, DataFile, Explained, Files, Origins, Preview, Problem } from "./protocol";
import { Refused } from "./logic/connection";

async function problemOf(response: Response): Promise<Error> {
  try {
    const { error } = (await response.json()) as { error: Problem };
    if (error?.message) return new Refused(error);
  } catch {
    // Not from our own handlers; the status is all there is.
  }
  return new Error(`The server answered ${response.status}.`);
}

async function get<T>(path: string): Promise<T> {
  const response = await host.fetch(path);
  if (!response.ok) throw await problemOf(response);
  return (await response.json()) as T;
}

export type Opening = { open: string } | { new: true } | { example: string } | { draft: string } | { data: string; name: string };

export const api = {
  catalogue: () => get<Catalogue>("/api/catalogue"),
  files: () => get<Files>("/api/files"),
  rows: (document: string, block: string, pin: string, row: number) =>
    get<Origins>(`/api/documents/${encodeURIComponent(document)}/rows?${new URLSearchParams({ block, pin, row: String(row) })}`),

  explain: (document: string, block: string, pin: string, index: number[]) => get<Explained>(`/api/documents/${encodeURIComponent(document)}/explain?${new URLSearchParams({ block, pin, index: index.join(",") })}`),

  /** A result, or its difference from another run: rows, colours, counts, series or points of it. */
  look: <T>(document: string, what: string, query: Record<string, string | number | boolean | null>) =>
    get<T>(`/api/documents/${encodeURIComponent(document)}/look/${what}?${new URLSearchParams(Object.entries(query).flatMap(([name, value]) => (value === null ? [] : [[name, String(value)]])))}`),

  async document(opening: Opening): Promise<string> {
    const response = await host.fetch("/api/documents", { method: "POST", body: JSON.stringify(opening) });
    if (!response.ok) throw await problemOf(response);
    return ((await response.json()) as { document: string }).document;
  },

  async discard(draft: string): Promise<void> {
    const response = await host.fetch(`/api/drafts/${encodeURIComponent(draft)}`, { method: "DELETE" });
    if (!response.ok) throw await problemOf(response);
  },

  data: (document: string) => get<{ files: DataFile[] }>(`/api/documents/${encodeURIComponent(document)}/data`),
  preview: (document: string, path: string) => get<Preview>(`/api/documents/${encodeURIComponent(document)}/data/preview?${new URLSearchParams({ path })}`),

  async keepData(document: string, name: string, data: string): Promise<string> {
    const response = await host.fetch(`/api/documents/${encodeURIComponent(document)}/data`, { method: "POST", body: JSON.stringify({ name, data }) });
    if (!response.ok) throw await problemOf(response);
    return ((await response.json()) as { path: string }).path;
  },

  /** Whether the server still knows this browser: after a restart it has a new key. */
  async isKnown(): Promise<boolean | null> {
    try {
      return (await host.fetch("/api/files")).status !== 403;
    } catch {
      return null; // it is not there
    }
  },

  /** Hands what was made here to the browser to keep. */
  keep(content: Blob, name: string): void {
    const address = URL.createObjectURL(content);
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  },

  /** Fetches a file and hands it to the browser to keep; errors come back as errors rather than as a page. */
  async download(path: string, fallback: string): Promise<string> {
    const response = await host.fetch(path);
    if (!response.ok) throw await problemOf(response);
    const header = response.headers.get("Content-Disposition") ?? "";
    const encoded = /filename\*=utf-8''([^;]+)/i.exec(header)?.[1];
    const name = (encoded && decodeURIComponent(encoded)) ?? /filename="?([^";]+)"?/i.exec(header)?.[1] ?? fallback;
    api.keep(await response.blob(), name);
    return name;
  },

  draftPicture: (draft: string, modified: number) => `/api/drafts/${encodeURIComponent(draft)}/picture?${modified}`,
  output: (document: string, block: string, pin: string, as: "npy" | "csv") => `/api/documents/${encodeURIComponent(document)}/output?${new URLSearchParams({ block, pin, as })}`,
  export: (document: string, as: string) => `/api/documents/${encodeURIComponent(document)}/export?${new URLSearchParams({ as })}`,
};
