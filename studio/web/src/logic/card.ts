// The sizes of cards, the same as the library's layout reckons with.

import type { Block, OperatorDoc } from "../protocol";
import { CARD } from "./arrange";

export const HEAD = 40;
export const LINE = 22;
export const FOOT = 10;
export const RESULT = 120; // the room for results

const LETTER = 5.9; // of a pin's name, near enough
const WIDEST = 280; // what leaves room for a wire and its label between columns

/** A point that a wire leads over: an Identity of that name is drawn as a dot. */
export const isReroute = (block: Block | undefined): boolean => block?.op === "Identity" && /^reroute(_\d+)?$/.test(block.id);
export const DOT = { width: 40, height: 22 };

/** How wide a block is: as others, unless names of pins would leave no room for what is typed between them. */
export function cardWidth(operator: OperatorDoc | undefined): number {
  const lines = operator ? Array.from({ length: operator.outputs.length }, (_, i) => (operator.inputs[i]?.name.length ?? 0) + (operator.outputs[i]?.name.length ?? 0)) : [];
  const needed = Math.max(0, ...lines) * LETTER + 106;
  return Math.round(Math.max(CARD, Math.min(WIDEST, needed)));
}

/** How high a block is without its results; every attribute has a line, since every one can be edited. */
export function cardHeight(block: Block, operator: OperatorDoc | undefined): number {
  if (isReroute(block)) return DOT.height;
  const lines = operator ? Math.max(operator.inputs.length, operator.outputs.length) + operator.attributes.length : 1;
  if (block.op === "Group") return HEAD + LINE * Math.max(lines, 1) + FOOT + (/^(gradients|training)/.test(block.id) ? 96 : 0);
  return HEAD + LINE * Math.max(lines, 1) + FOOT;
}
