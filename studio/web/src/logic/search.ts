// Finding an operator by some letters of its name, by what people call it, by its family or by what it does.

import type { OperatorDoc } from "../protocol";

/** What people say, and which operators (or families, with a colon) they mean by it; the likeliest first. */
const MEANINGS: [RegExp, string[]][] = [
  [/^(embed|embedd|embedding|embeddings|lookup|look-up|bag|pool|pooling|pooled)/, ["SparseSegmentMean", "SparseSegmentSum", "SparseSegmentSqrtN", ":sparse_segment", ":weighted_sum", "Gather", "Variable"]],
  [/^(optim|optimi[sz]er|optimi[sz]ers|train|training|sgd|learn|learning|update|step)/, ["ApplyGradientDescent", "ApplyAdagrad", "ApplyAdam", "ApplyMomentum", ":updates"]],
  [/^(random|noise|init|initial|seed|normal|uniform)/, ["StatelessRandomNormal", "StatelessTruncatedNormal", "StatelessRandomUniform", "Variable"]],
  [/^(loss|cost|objective|cross-?entropy|crossentropy|error)/, ["SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "SigmoidCrossEntropyWithLogits", ":losses", "SquaredDifference"]],
  [/^(data|dataset|batch|batches|csv|parquet|arrow|npy|npz|file|files|load|import)/, ["Batches", "File", "Placeholder", "Const"]],
  [/^(weight|weights|param|parameter|parameters|table|state)/, ["Variable", "Const"]],
  [/^(dense|linear|layer|fully|matrix|dot|product)/, ["MatMul", "Add"]],
  [/^(bias|plus)$/, ["Add", "AddN"]],
  [/^(activation|nonlinearity)/, ["Relu", "Sigmoid", "Tanh", "Softmax"]],
  [/^(average|avg)/, ["ReduceMean", "SparseSegmentMean", "SegmentMean"]],
  [/^(number|constant|literal|value|array)/, ["Const", "Variable", "Placeholder"]],
  [/^(accuracy|correct|predict|prediction)/, ["ArgMax", "Equal", "ReduceMean", "Cast"]],
  [/^(mask|masking|choose|if|where)/, ["SelectV2", "Select", "Where", "SparseFillEmptyRows"]],
  [/^(clip|clipping|limit)/, ["ClipByValue", "Minimum", "Maximum"]],
  [/^(one-?hot|onehot|categorical)/, ["OneHot"]],
  [/^(join|merge|stack|combine)/, ["Concat", "ConcatV2", "Pack", "SparseConcat", ":joining"]],
  [/^(hash|text|string|word|words|bucket)/, ["StringToHashBucketFast", ":hashing"]],
  [/^(empty|default|missing)/, ["SparseFillEmptyRows", "RaggedFillEmptyRows"]],
];

/** How well an operator answers to `query`; 0 is not at all. Names count more than sentences, beginnings more than middles. */
export function score(operator: OperatorDoc, familyTitle: string, query: string): number {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return 1;
  const name = operator.name.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const found = Math.max(inName(operator.name, name, word), meant(operator, word), familyTitle.toLowerCase().includes(word) ? 8 : 0, operator.summary.toLowerCase().includes(word) ? 6 : 0, isSpread(name, word) ? 2 : 0);
    if (!found) return 0;
    sum += found;
  }
  return sum;
}

function inName(name: string, lower: string, word: string): number {
  if (lower === word) return 100;
  const capitals = name.replace(/[^A-Z0-9]/g, "").toLowerCase();
  if (word.length > 1 && capitals === word) return 90; // ssmg for SparseSegmentMeanGrad
  if (lower.startsWith(word)) return 60 - Math.min(20, lower.length - word.length);
  const at = lower.indexOf(word);
  if (at > 0) return (/[A-Z]/.test(name[at] ?? "") ? 35 : 20) - Math.min(10, (lower.length - word.length) / 4);
  return word.length > 1 && capitals.startsWith(word) ? 18 - Math.min(8, capitals.length - word.length) : 0;
}

/** How likely somebody who says `word` means this operator. */
function meant(operator: OperatorDoc, word: string): number {
  if (word.length < 3) return 0;
  for (const [pattern, names] of MEANINGS) {
    if (!pattern.test(word)) continue;
    const at = names.findIndex((name) => name === operator.name || name === `:${operator.family}`);
    if (at >= 0) return 58 - at; // before names that only begin so
  }
  return 0;
}

/** Whether the letters of `word` stand in `text` in this order. */
function isSpread(text: string, word: string): boolean {
  if (word.length < 3) return false;
  let at = 0;
  for (const letter of text) if (letter === word[at]) at++;
  return at === word.length;
}

export interface Found {
  operator: OperatorDoc;
  pin: string | null; // what a dragged wire would be joined to
}

/** Operators that answer to `query`, best first, then as in the catalogue; `only` keeps those that fit a wire. */
export function find(operators: OperatorDoc[], titles: Record<string, string>, query: string, only: { op: string; pin: string }[] | null): Found[] {
  const pins = only && new Map(only.toReversed().map(({ op, pin }) => [op, pin]));
  const found = operators.filter((operator) => !pins || pins.has(operator.name)).map((operator) => ({ operator, pin: pins?.get(operator.name) ?? null, score: score(operator, titles[operator.family] ?? "", query) }));
  const best = Math.max(0, ...found.map((item) => item.score));
  // Letters that are only spread over a name are a last resort.
  return found.filter((item) => item.score > (best > 4 ? 2 : 0)).sort((left, right) => right.score - left.score);
}
