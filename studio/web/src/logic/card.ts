// The sizes of cards, the same as the library's layout reckons with.

import type { Block, OperatorDoc } from "../protocol";

export const HEAD = 40;
export const LINE = 22;
export const FOOT = 10;
export const RESULT = 120; // the room for results

/** How high a block is without its results; every attribute has a line, since every one can be edited. */
export function cardHeight(_block: Block, operator: OperatorDoc | undefined): number {
  const lines = operator ? Math.max(operator.inputs.length, operator.outputs.length) + operator.attributes.length : 1;
  return HEAD + LINE * Math.max(lines, 1) + FOOT;
}
