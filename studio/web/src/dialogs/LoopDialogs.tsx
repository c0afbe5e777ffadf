// What is asked before a loop and before a sweep, and on which split to evaluate.

import { useMemo, useState } from "react";
import { brief } from "../logic/heat";
import { scalars, tunables, typedAs } from "../logic/outputs";
import { sweepValues } from "../logic/runs";
import { closeDialog, DialogForm, toggled } from "../parts/DialogForm";
import { Modal } from "../parts/Modal";
import { evaluate, loop, splitText, sweep } from "../runs";
import { store } from "../store";

const isCount = (text: string): boolean => /^\d+$/.test(text.trim()) && Number(text) >= 1;

function Steps({ value, onChange, wrong }: { value: string; onChange: (text: string) => void; wrong: boolean }) {
  return (
    <label className="line">
      Steps
      <input type="text" inputMode="numeric" aria-label="Steps" aria-invalid={wrong} aria-describedby={wrong ? "steps-problem" : undefined} data-first value={value} onChange={(event) => onChange(event.target.value)} />
    </label>
  );
}

function Record({ outputs, chosen, onChange }: { outputs: string[]; chosen: Set<string>; onChange: (next: Set<string>) => void }) {
  return (
    <fieldset>
      <legend>Record</legend>
      {outputs.length === 0 && <p className="dim">No output of this page is a single number.</p>}
      {outputs.map((name) => (
        <label key={name} className="choice">
          <input type="checkbox" checked={chosen.has(name)} onChange={() => onChange(toggled(chosen, name))} /> {name}
        </label>
      ))}
    </fieldset>
  );
}

/** The splits that the batches of the page have; those that a column names are only in the data, and are typed. */
function splitsOf(): { known: string[]; typed: boolean } {
  const batches = Object.values(store.get().page.blocks).filter((block) => block.op === "Batches");
  const named = batches.flatMap(({ attrs }) => (Array.isArray(attrs["splits"]) ? attrs["splits"] : []).map((text) => String(text).split("=")[0] as string));
  const holdsOut = batches.some((block) => Number(block.attrs["holdout"] ?? 0) > 0);
  return { known: batches.length ? [...(holdsOut ? ["test"] : []), ...new Set(named), "train"] : [], typed: batches.some((block) => block.attrs["split_by"]) };
}

export function LoopDialog() {
  const outputs = useMemo(() => scalars(store.get()), []);
  const [steps, setSteps] = useState("100");
  const [name, setName] = useState("");
  const [record, setRecord] = useState<Set<string>>(new Set(outputs.slice(0, 1)));
  const [problem, setProblem] = useState<string | null>(null);
  const { known: splits, typed } = useMemo(splitsOf, []);
  const [split, setSplit] = useState(typed ? "test" : (splits[0] ?? ""));
  const [evaluating, setEvaluating] = useState(splits.includes("test"));
  const chosen = outputs.filter((output) => record.has(output));
  const commit = (): void => {
    if (!isCount(steps)) return setProblem("Type a whole number from 1.");
    closeDialog();
    void loop(Number(steps), chosen, name).then((done) => (done && evaluating && chosen.length ? evaluate(chosen, split) : undefined));
  };
  const now = (): void => {
    closeDialog();
    void evaluate(chosen, split);
  };
  return (
    <Modal title="Loop" onClose={closeDialog}>
      <DialogForm
        yes="Start the loop"
        commit={commit}
        problem={problem}
        problemId="steps-problem"
        more={
          splits.length > 0 && (
            <button type="button" disabled={!chosen.length} onClick={now}>
              Evaluate now
            </button>
          )
        }
      >
        <Steps value={steps} onChange={setSteps} wrong={problem !== null} />
        <label className="line">
          Name
          <input type="text" aria-label="Name of the run" placeholder="run 1, run 2, …" value={name} onChange={(event) => setName(event.target.value)} />
        </label>
        <Record outputs={outputs} chosen={record} onChange={setRecord} />
        {splits.length > 0 && (
          <label className="line">
            Evaluate on
            {typed ? (
              <input type="text" aria-label="Split" value={split} onChange={(event) => setSplit(event.target.value)} />
            ) : (
              <select aria-label="Split" value={split} onChange={(event) => setSplit(event.target.value)}>
                {splits.map((item) => (
                  <option key={item} value={item}>
                    {splitText(item)}
                  </option>
                ))}
              </select>
            )}
          </label>
        )}
        {splits.length > 0 && (
          <label className="choice">
            <input type="checkbox" aria-label="Evaluate afterwards" checked={evaluating} onChange={() => setEvaluating(!evaluating)} /> Evaluate afterwards
          </label>
        )}
      </DialogForm>
    </Modal>
  );
}

/** Five values around the one that holds, in ratios of about three. */
function around(value: number, whole: boolean): string {
  if (value === 0) return "-1, -0.5, 0, 0.5, 1";
  const found = [0.1, 0.3, 1, 3, 10].map((factor) => Number((value * factor).toPrecision(3)));
  return [...new Set(whole ? found.map((item) => Math.max(1, Math.round(item))) : found)].join(", ");
}

export function SweepDialog({ target }: { target?: string }) {
  const outputs = useMemo(() => scalars(store.get()), []);
  const choices = useMemo(() => tunables(store.get()), []);
  const [at, setAt] = useState(Math.max(0, choices.findIndex((item) => `${item.block}:${item.name}` === target)));
  const chosen = choices[at];
  const [typed, setTyped] = useState<string | null>(null);
  const values = typed ?? (chosen ? around(chosen.value, chosen.whole) : "");
  const [steps, setSteps] = useState("100");
  const [record, setRecord] = useState<Set<string>>(new Set(outputs.slice(0, 1)));
  const [problem, setProblem] = useState<string | null>(null);
  const commit = (): void => {
    const found = sweepValues(values);
    if (!chosen) return setProblem("No single number is typed on this page.");
    if (typeof found === "string") return setProblem(found);
    if (!isCount(steps)) return setProblem("Steps: type a whole number from 1.");
    if (!record.size) return setProblem("Choose at least one output to record.");
    closeDialog();
    void sweep(`${chosen.block}:${chosen.name}`, found.map((value) => typedAs(chosen, value)), Number(steps), outputs.filter((output) => record.has(output)));
  };
  return (
    <Modal title="Sweep" onClose={closeDialog}>
      <DialogForm yes="Start the sweep" commit={commit} problem={problem} disabled={!choices.length}>
        <p className="dim">One loop for each value, each from the beginning; the page itself stays as it is.</p>
        <label className="line">
          Number
          <select
            aria-label="Number to sweep"
            value={at}
            onChange={(event) => {
              setAt(Number(event.target.value));
              setTyped(null);
            }}
          >
            {choices.map((item, position) => (
              <option key={`${item.block}:${item.name}`} value={position}>
                {item.name} of {item.block} (now {brief(item.value)})
              </option>
            ))}
          </select>
        </label>
        <label className="line">
          Values
          <input type="text" aria-label="Values" data-first value={values} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <Steps value={steps} onChange={setSteps} wrong={false} />
        <Record outputs={outputs} chosen={record} onChange={setRecord} />
      </DialogForm>
    </Modal>
  );
}
