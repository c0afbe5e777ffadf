// Outputs of a page by what they are good for.

import type { Source } from "../protocol";
import { operatorOf, type State } from "../store";
import { Exact } from "./exact";
import { literalOf } from "./literal";

export const isFloat = (dtype: string | null | undefined): boolean => /^(b?float|complex)/.test(dtype ?? "");

/** Outputs that are one number, the likeliest to be recorded first: those that nothing but gradients follow. */
export function scalars(state: State): string[] {
  const found: string[] = [];
  for (const id of state.page.order) {
    const block = state.page.blocks[id];
    const role = operatorOf(block, state)?.role;
    if (!block || role === "const" || role === "group" || /^(gradients|training)(_\d+)?\//.test(id)) continue;
    for (const [pin, signal] of Object.entries(block.out)) if (signal.shape?.length === 0 && isFloat(signal.dtype)) found.push(`${id}:${pin}`);
  }
  const likely = (name: string): number => (/loss|cost|error/i.test(name) ? 0 : /accuracy/i.test(name) ? 1 : 2);
  return found.sort((left, right) => likely(left) - likely(right));
}

export interface Tunable {
  block: string; // or a group
  name: string;
  value: number;
  whole: boolean; // only whole numbers
  source: Source;
}

const numberOf = (leaf: unknown): number | null => (typeof leaf === "number" ? leaf : leaf instanceof Exact ? Number(leaf.text) : null);

/** Single numbers that can be swept or slid: settings of training, then literals at pins, then attributes. */
export function tunables(state: State): Tunable[] {
  const found: Tunable[] = [];
  for (const { name: block, settings, kind } of state.page.groups) {
    if (kind) for (const [name, value] of Object.entries(settings)) if (numberOf(value) !== null) found.push({ block, name, value: numberOf(value) as number, whole: false, source: value });
  }
  for (const id of state.page.order) {
    const block = state.page.blocks[id];
    const operator = operatorOf(block, state);
    if (!block || !operator || block.op === "Group") continue;
    for (const pin of operator.inputs) {
      const source = block.inputs[pin.name];
      const value = typeof source === "string" ? null : numberOf(literalOf(source)?.value);
      if (source !== undefined && value !== null) found.push({ block: id, name: pin.name, value, whole: !isFloat(block.in[pin.name]?.[0]?.dtype), source });
    }
    for (const attribute of operator.attributes) {
      const source = block.attrs[attribute.name];
      const value = attribute.kind === "value" ? numberOf(literalOf(source)?.value) : attribute.kind === "int" || attribute.kind === "float" ? numberOf(source) : null;
      if (source !== undefined && value !== null) found.push({ block: id, name: attribute.name, value, whole: attribute.kind === "int" || (attribute.kind === "value" && !isFloat(Object.values(block.out)[0]?.dtype)), source });
    }
  }
  return found;
}

/** `value` in the place of another number: a whole one among floating-point numbers is written as 1.0. */
export function typedAs({ source, whole }: Pick<Tunable, "source" | "whole">, value: number): Source {
  const typed = (whole ? Math.round(value) : Number.isInteger(value) ? new Exact(`${value}.0`) : value) as unknown as Source;
  return source !== null && typeof source === "object" && !Array.isArray(source) && "value" in source && !(source instanceof Exact) ? { ...source, value: typed } : typed;
}
