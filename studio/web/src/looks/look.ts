// What the views of a result share: which array is looked at, and how a part of it is asked for.

import { useEffect, useState } from "react";
import { api } from "../api";
import type { Value } from "../protocol";
import { store } from "../store";

export interface Looked {
  block: string;
  pin: string;
  value: Value; // another one after each run: what was fetched is fetched again
  against: string; // a run that it is compared with; empty for none
}

export type Query = Record<string, string | number | boolean | null>;

export function look<T>({ block, pin, against }: Looked, what: string, query: Query): Promise<T> {
  const { document } = store.get();
  return document ? api.look<T>(document, what, { block, pin, ...(against ? { against } : {}), ...query }) : Promise.reject(new Error("No page is open yet."));
}

/** A part of the result; the last answer stays until the next is there, so that nothing flickers. */
export function useLook<T>(looked: Looked, what: string, query: Query): { found: T | null; problem: string | null } {
  const [state, setState] = useState<{ found: T | null; problem: string | null }>({ found: null, problem: null });
  const key = JSON.stringify(query);
  const { block, pin, value, against } = looked;
  useEffect(() => {
    let current = true;
    look<T>({ block, pin, value, against }, what, JSON.parse(key) as Query).then(
      (found) => current && setState({ found, problem: null }),
      (error: unknown) => current && setState({ found: null, problem: error instanceof Error ? error.message : String(error) }),
    );
    return () => {
      current = false;
    };
  }, [block, pin, value, against, what, key]);
  return state;
}

export const labelOf = ({ block, pin }: Looked): string => `${pin} of ${block}`;
export const sizesOf = ({ shape }: Value): { rows: number; columns: number } => {
  const columns = shape.length < 2 ? 1 : (shape.at(-1) as number);
  return { rows: shape.length < 2 ? (shape[0] ?? 1) : shape.slice(0, -1).reduce((product, size) => product * size, 1), columns };
};
