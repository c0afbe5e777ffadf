// Three guided lessons. Each step says what to do and looks at the page, the results and the runs whether it was done; nothing is taken on
// trust. A question is answered by choosing.

import type { Opening } from "../api";
import type { Block, Value } from "../protocol";
import type { State } from "../store";

export interface Step {
  title: string;
  text: string;
  /** What is still missing, in words; null when it was done. */
  missing?: (state: State) => string | null;
  question?: { choices: string[]; right: number; because: string };
}

export interface Lesson {
  id: string;
  title: string;
  about: string;
  opens: Opening;
  steps: Step[];
}

const ofKind = (state: State, op: string): Block[] => Object.values(state.page.blocks).filter((block) => block.op === op);

/** The outputs of the first block of an operator that has fresh ones. */
function outputsOf(state: State, op: string): Record<string, Value> | null {
  for (const { id } of ofKind(state, op)) {
    const result = state.results[id];
    if (result?.status === "done" && !result.stale) return result.outputs;
  }
  return null;
}

const shows = (value: Value | undefined, wanted: number[][]): boolean => value?.kind === "cells" && JSON.stringify(value.cells.map((row) => row.map(Number))) === JSON.stringify(wanted);
const needs = (state: State, op: string): string | null => (ofKind(state, op).length ? null : `There is no ${op} on the page yet.`);
/** The outputs of a block that is to be added and run; or what is still to be done. */
const computed = (state: State, op: string): Record<string, Value> | string => needs(state, op) ?? outputsOf(state, op) ?? "Fill its pins, then press Run.";

const pooling: Lesson = {
  id: "pooling",
  title: "Pooling and its gradient",
  about: "Pool rows of a table by hand, go backward, and see which row gets which gradient, and why.",
  opens: { new: true },
  steps: [
    {
      title: "A pooled look-up",
      text: "Press Ctrl K, type SparseSegmentMean and choose it. It takes rows of a table, called data, and averages them by segment: a bag of words becomes one vector.",
      missing: (state) => needs(state, "SparseSegmentMean"),
    },
    {
      title: "Pool three rows",
      text: "Type into its pins: data [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], indices [0, 2, 2], segment_ids [0, 0, 1]. Then press Run. Segment 0 is the mean of rows 0 and 2; segment 1 is row 2 alone.",
      missing: (state) => {
        const outputs = outputsOf(state, "SparseSegmentMean");
        if (!outputs) return "Fill the three pins, then press Run.";
        return shows(outputs["output"], [[3, 4], [5, 6]]) ? null : "It ran, but the result is not [[3, 4], [5, 6]]: compare your input with the text above.";
      },
    },
    {
      title: "Go backward",
      text: "Add SparseSegmentMeanGrad. Give it grad [[1.0, 1.0], [1.0, 1.0]], the same indices and segment_ids, and output_dim0 3, the number of rows of the table. Run.",
      missing: (state) => {
        const outputs = computed(state, "SparseSegmentMeanGrad");
        if (typeof outputs === "string") return outputs;
        return shows(outputs["output"], [[0.5, 0.5], [0, 0], [1.5, 1.5]]) ? null : "The gradient should be [[0.5, 0.5], [0, 0], [1.5, 1.5]]: compare indices, segment_ids and output_dim0.";
      },
    },
    {
      title: "Why 1.5?",
      text: "Click on a 1.5 in the last row of the gradient. You see the entries that made it: a half from segment 0, which row 2 shares with row 0, and all of segment 1, which is row 2 alone. Then close the window.",
      missing: (state) => {
        const { why, page } = state;
        return why && page.blocks[why.block]?.op === "SparseSegmentMeanGrad" && why.index[0] === 2 ? null : "Click on a number in row 2 of the result of SparseSegmentMeanGrad.";
      },
    },
    {
      title: "A question",
      text: "Row 1 of the gradient is zero. Why?",
      question: { choices: ["Its values are too small", "No entry of indices is 1", "Segment 1 has only one row"], right: 1, because: "Row 1 was never looked up, so nothing that was computed depends on it. That is what makes the gradient sparse." },
    },
  ],
};

const compact: Lesson = {
  id: "compact",
  title: "Compact or dense",
  about: "The same gradient twice: with a row for every row of the table, and only with the rows that were used.",
  opens: { example: "compact_or_dense" },
  steps: [
    {
      title: "The dense one",
      text: "Press Run. The table has 1,000 rows, and so has the gradient, though only rows 2 and 7 were looked up.",
      missing: (state) => (outputsOf(state, "SparseSegmentSumGrad")?.["output"]?.shape[0] === 1000 ? null : "Press Run, with output_dim0 at 1000."),
    },
    {
      title: "The compact one",
      text: "Add SparseSegmentSumGradV2. Wire grad:output to its grad, and type the same indices [7, 2, 7], segment_ids [0, 0, 1] and dense_output_dim0 1000. Run. It has two rows, and sorted_unique_indices says which they are.",
      missing: (state) => {
        const outputs = computed(state, "SparseSegmentSumGradV2");
        if (typeof outputs === "string") return outputs;
        return outputs["output"]?.shape[0] === 2 && outputs["sorted_unique_indices"]?.cells.flat().join() === "2,7" ? null : "It should have two rows, for the ids 2 and 7: compare its indices.";
      },
    },
    {
      title: "A million rows",
      text: "Change output_dim0 of dense to 1000000, and dense_output_dim0 of the other one too. Run, and compare the sizes. Enlarge the dense one and sort it by a column: only two rows are not zero.",
      missing: (state) => {
        if (outputsOf(state, "SparseSegmentSumGrad")?.["output"]?.shape[0] !== 1_000_000) return "The dense gradient does not have 1,000,000 rows yet.";
        return outputsOf(state, "SparseSegmentSumGradV2")?.["output"]?.shape[0] === 2 ? null : "Run again, so that both are up to date.";
      },
    },
    {
      title: "A question",
      text: "An optimizer updates the table with this gradient. How many rows does it have to touch?",
      question: { choices: ["3: one for each entry", "1,000,000: every row", "2: the rows that were used"], right: 2, because: "Two. Row 7 was used twice, and both entries were added up before. The compact form is what makes training of large tables fast." },
    },
  ],
};

const recommender: Lesson = {
  id: "recommender",
  title: "Training a small recommender",
  about: "A model of ten films and eight users: train it, compare learning rates, and look at what it has learnt.",
  opens: { example: "recommender" },
  steps: [
    {
      title: "Before training",
      text: "Press Run. The films a user has seen are averaged, and matched with the next film. The loss is the mean squared error of the predictions.",
      missing: (state) => (state.results["loss"]?.status === "done" ? null : "Press Run."),
    },
    {
      title: "Make it train",
      text: "Press Train. The loss and the variable films are chosen already; choose an optimizer, and press Add training. A group with the gradient and the update appears: it is derived, and follows every change of the model.",
      missing: (state) => (state.page.groups.some((group) => group.kind === "training") ? null : "There is no training on the page yet."),
    },
    {
      title: "Train",
      text: "Press Loop, and run 100 steps or more. The chart below shows the loss while it learns.",
      missing: (state) => {
        const found = state.runs.flatMap((run) => Object.entries(run.values).flatMap(([name, values]) => (name.startsWith("loss") && values.length >= 50 ? [values] : [])));
        if (!found.length) return "No loop of 50 steps or more has recorded the loss yet.";
        return found.some((values) => Number(values.at(-1)) < 0.5 * Number(values[0])) ? null : "The loss has not halved: take more steps, or a larger learning rate.";
      },
    },
    {
      title: "Which learning rate?",
      text: "Press Sweep, above the chart, and start it with the five values it offers for lr. Each is one run, from the same initial values.",
      missing: (state) => {
        const count = state.runs.filter((run) => /^lr /.test(run.about) && Object.values(run.values).some((values) => values.length > 0)).length;
        return count >= 3 ? null : `The sweep over lr has ${count} of at least 3 runs.`;
      },
    },
    {
      title: "What has it learnt?",
      text: "Enlarge the result of films, and choose Projection. Point at the films: those that the same users have seen tend to be close together.",
      missing: (state) => (state.lookedAt === "films Projection" ? null : "Enlarge the result of films and choose Projection."),
    },
  ],
};

export const LESSONS: Lesson[] = [pooling, compact, recommender];
