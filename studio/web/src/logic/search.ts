// Finding an operator by some letters of its name, its family or what it does.

import type { OperatorDoc } from "../protocol";

/** How well `text` answers to `query`; 0 is not at all. Names count more than sentences, beginnings more than middles. */
export function score(operator: OperatorDoc, familyTitle: string, query: string): number {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return 1;
  const name = operator.name.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const found = inName(operator.name, name, word) || (familyTitle.toLowerCase().includes(word) ? 8 : 0) || (operator.summary.toLowerCase().includes(word) ? 4 : 0);
    if (!found) return 0;
    sum += found;
  }
  return sum;
}

function inName(name: string, lower: string, word: string): number {
  if (lower === word) return 100;
  if (lower.startsWith(word)) return 60 - Math.min(20, lower.length - word.length);
  const at = lower.indexOf(word);
  if (at > 0) return (/[A-Z]/.test(name[at] ?? "") ? 35 : 20) - Math.min(10, (lower.length - word.length) / 4);
  const capitals = name.replace(/[^A-Z0-9]/g, "").toLowerCase();
  if (word.length > 1 && capitals.startsWith(word)) return 18; // ssmg for SparseSegmentMeanGrad
  return word.length > 2 && isSpread(lower, word) ? 10 : 0;
}

/** Whether the letters of `word` stand in `text` in this order. */
function isSpread(text: string, word: string): boolean {
  let at = 0;
  for (const letter of text) if (letter === word[at]) at++;
  return at === word.length;
}

export interface Found {
  operator: OperatorDoc;
  pin: string | null; // what a dragged wire would be joined to
}

/** Operators that answer to `query`, best first; `only` keeps those that fit a wire. */
export function find(operators: OperatorDoc[], titles: Record<string, string>, query: string, only: { op: string; pin: string }[] | null): Found[] {
  const pins = only && new Map(only.toReversed().map(({ op, pin }) => [op, pin]));
  const found = operators.filter((operator) => !pins || pins.has(operator.name)).map((operator) => ({ operator, pin: pins?.get(operator.name) ?? null, score: score(operator, titles[operator.family] ?? "", query) }));
  return found.filter((item) => item.score > 0).sort((left, right) => right.score - left.score || left.operator.name.localeCompare(right.operator.name));
}
