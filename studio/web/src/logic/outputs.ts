// Outputs of a page by what they are good for.

import { operatorOf, type State } from "../store";

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
