// What is asked before a loop, and before gradients are added; and a result in large.

import { useMemo, useState } from "react";
import { isFloat, scalars } from "../logic/outputs";
import { endOf, upstream } from "../logic/wires";
import { Modal } from "../parts/Modal";
import { ResultView } from "../parts/ResultView";
import { openDialog, operatorOf, store, useStore } from "../store";
import { addGradients, checkGradients, evaluate, loop } from "../studio";
import { fit } from "../view";

const close = (): void => openDialog(null);

export function LoopDialog() {
  const outputs = useMemo(() => scalars(store.get()), []);
  const [steps, setSteps] = useState("100");
  const [record, setRecord] = useState<Set<string>>(new Set(outputs.slice(0, 1)));
  const [problem, setProblem] = useState<string | null>(null);
  const holdsOut = Object.values(store.get().page.blocks).some((block) => block.op === "Batches" && Number(block.attrs["holdout"] ?? 0) > 0);
  const [evaluating, setEvaluating] = useState(holdsOut);
  const commit = (): void => {
    const count = Number(steps);
    if (!/^\d+$/.test(steps.trim()) || count < 1) return setProblem("Type a whole number from 1.");
    close();
    const chosen = outputs.filter((name) => record.has(name));
    void loop(count, chosen).then(() => (evaluating && chosen.length ? evaluate(chosen) : undefined));
  };
  const toggle = (name: string): void => {
    const next = new Set(record);
    if (!next.delete(name)) next.add(name);
    setRecord(next);
  };
  return (
    <Modal title="Loop" onClose={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          commit();
        }}
      >
        <label className="line">
          Steps
          <input type="text" inputMode="numeric" aria-label="Steps" aria-invalid={problem !== null} aria-describedby={problem ? "steps-problem" : undefined} data-first value={steps} onChange={(event) => setSteps(event.target.value)} />
        </label>
        {problem && (
          <p className="field-error" id="steps-problem">
            {problem}
          </p>
        )}
        <fieldset>
          <legend>Record</legend>
          {outputs.length === 0 && <p className="dim">No output of this page is a single number.</p>}
          {outputs.map((name) => (
            <label key={name} className="choice">
              <input type="checkbox" checked={record.has(name)} onChange={() => toggle(name)} /> {name}
            </label>
          ))}
        </fieldset>
        {holdsOut && (
          <label className="choice">
            <input type="checkbox" aria-label="Evaluate afterwards" checked={evaluating} onChange={() => setEvaluating(!evaluating)} /> Evaluate on the examples that are held out, afterwards
          </label>
        )}
        <div className="buttons">
          <button type="submit" className="primary">
            Start the loop
          </button>
          {holdsOut && (
            <button
              type="button"
              disabled={!record.size}
              onClick={() => {
                close();
                void evaluate(outputs.filter((name) => record.has(name)));
              }}
            >
              Evaluate now
            </button>
          )}
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
      </form>
    </Modal>
  );
}

const HOLDERS = ["variable", "const", "placeholder", "file", "restore"];

export function GradientsDialog({ output }: { output: string }) {
  const { page, wires } = store.get();
  const outputs = Object.keys(page.blocks[endOf(output).block]?.out ?? {}).map((pin) => `${endOf(output).block}:${pin}`);
  const [y, setY] = useState(output);
  const candidates = useMemo(() => {
    const before = upstream(endOf(y).block, wires);
    return page.order.flatMap((id) => {
      const block = page.blocks[id];
      const role = operatorOf(block)?.role ?? "";
      if (!block || !before.has(id) || !HOLDERS.includes(role) || id === endOf(y).block) return [];
      return Object.entries(block.out).flatMap(([pin, signal]) => (isFloat(signal.dtype) ? [{ name: `${id}:${pin}`, role, text: signal.text }] : []));
    });
  }, [y, page, wires]);
  const [chosen, setChosen] = useState<Set<string> | null>(null);
  const variables = candidates.filter((item) => item.role === "variable");
  const xs = chosen ?? new Set((variables.length ? variables : candidates).map((item) => item.name));
  const [problem, setProblem] = useState<string | null>(null);
  const [checked, setChecked] = useState<string | null>(null);
  const names = candidates.map((item) => item.name).filter((name) => xs.has(name));
  const toggle = (name: string): void => {
    const next = new Set(xs);
    if (!next.delete(name)) next.add(name);
    setChosen(next);
  };
  const commit = async (): Promise<void> => {
    if (!names.length) return setProblem("Choose at least one.");
    try {
      await addGradients(y, names);
      close();
      setTimeout(fit, 100);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  const check = (): void => {
    setChecked("Comparing with finite differences …");
    checkGradients(y, names).then(setChecked, (error: unknown) => setChecked(error instanceof Error ? error.message : String(error)));
  };
  return (
    <Modal title={`Add gradients of ${output}`} onClose={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void commit();
        }}
      >
        {outputs.length > 1 && (
          <label className="line">
            Output
            <select aria-label="Output" value={y} onChange={(event) => setY(event.target.value)}>
              {outputs.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <fieldset>
          <legend>With respect to</legend>
          {candidates.length === 0 && <p className="dim">Nothing that {y} depends on is a variable, constant or placeholder of floating-point type.</p>}
          {candidates.map(({ name, role, text }) => (
            <label key={name} className="choice">
              <input type="checkbox" aria-label={name} checked={xs.has(name)} onChange={() => toggle(name)} /> {name}{" "}
              <span className="dim">
                {role}, {text}
              </span>
            </label>
          ))}
        </fieldset>
        {problem && <p className="field-error">{problem}</p>}
        {checked && <p className="dim">{checked}</p>}
        <div className="buttons">
          <button type="submit" className="primary" disabled={!candidates.length}>
            Add gradients
          </button>
          <button type="button" disabled={!names.length} onClick={check}>
            Check against differences
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
      </form>
    </Modal>
  );
}

export function ResultDialog({ block, pin }: { block: string; pin: string }) {
  const result = useStore((state) => state.results[block]);
  const value = result?.outputs[pin];
  return (
    <Modal title={`Result: ${block}:${pin}`} onClose={close} wide>
      {value ? <ResultView block={block} pin={pin} value={value} stale={Boolean(result?.stale)} large /> : <p className="dim">It is not there any more.</p>}
    </Modal>
  );
}
