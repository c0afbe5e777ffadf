// What is asked before gradients are added.

import { useMemo, useState } from "react";
import { isFloat } from "../logic/outputs";
import { endOf, upstream } from "../logic/wires";
import { Modal } from "../parts/Modal";
import { closeDialog, DialogForm, toggled, wordsOf } from "../parts/DialogForm";
import { operatorOf, store } from "../store";
import { addGradients, checkGradients } from "../studio";
import { fit } from "../view";

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
  const commit = async (): Promise<void> => {
    if (!names.length) return setProblem("Choose at least one.");
    try {
      await addGradients(y, names);
      closeDialog();
      setTimeout(fit, 100);
    } catch (error) {
      setProblem(wordsOf(error));
    }
  };
  const check = (): void => {
    setChecked("Comparing with finite differences …");
    checkGradients(y, names).then(setChecked, (error: unknown) => setChecked(wordsOf(error)));
  };
  return (
    <Modal title={`Add gradients of ${output}`} onClose={closeDialog}>
      <DialogForm
        yes="Add gradients"
        commit={commit}
        disabled={!candidates.length}
        problem={problem}
        more={
          <button type="button" disabled={!names.length} onClick={check}>
            Check against differences
          </button>
        }
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
              <input type="checkbox" aria-label={name} checked={xs.has(name)} onChange={() => setChosen(toggled(xs, name))} /> {name}{" "}
              <span className="dim">
                {role}, {text}
              </span>
            </label>
          ))}
        </fieldset>
        {checked && <p className="dim">{checked}</p>}
      </DialogForm>
    </Modal>
  );
}
