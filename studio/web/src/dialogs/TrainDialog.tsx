// Training in one gesture: which loss, which variables, which optimizer. Gradients, slots and updates come as one group.

import { useMemo, useState } from "react";
import { train } from "../groups";
import { readLeaf } from "../logic/literal";
import { isFloat, scalars } from "../logic/outputs";
import { endOf, upstream } from "../logic/wires";
import { closeDialog as close, DialogForm, toggled, wordsOf } from "../parts/DialogForm";
import { Modal } from "../parts/Modal";
import type { Source } from "../protocol";
import { operatorOf, store, useStore } from "../store";
import { fit } from "../view";

export function TrainDialog() {
  const page = useStore((state) => state.page); // the last gesture may still be on its way
  const { wires, catalogue, selected } = store.get();
  const outputs = useMemo(() => scalars(store.get()), [page]);
  const [chosen, setLoss] = useState<string | null>(null);
  const loss = chosen ?? outputs.find((name) => endOf(name).block === selected) ?? outputs[0] ?? "";
  const before = useMemo(() => upstream(endOf(loss).block, wires), [loss, wires]);
  const variables = page.order.filter((id) => before.has(id) && operatorOf(page.blocks[id])?.role === "variable" && Object.values(page.blocks[id]?.out ?? {}).some((signal) => isFloat(signal.dtype)));
  const [left, setLeft] = useState<Set<string>>(new Set());
  const optimizers = catalogue?.optimizers ?? [];
  const [optimizer, setOptimizer] = useState(optimizers.find((item) => item.name === "Adagrad")?.name ?? optimizers[0]?.name ?? "");
  const settings = optimizers.find((item) => item.name === optimizer)?.settings ?? {};
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState<string | null>(null);
  const commit = async (): Promise<void> => {
    const numbers: Record<string, Source> = {};
    // Those that were left as they are too, so that the card shows all of them, and each can be changed, swept and slid later.
    for (const [name, value] of Object.entries(settings)) {
      const found = readLeaf(typed[name] ?? String(value), ["float64", "bool"]);
      if (!found.ok) return setProblem(`${name}: ${found.message}`);
      numbers[name] = found.value as unknown as Source;
    }
    try {
      await train(loss, variables.filter((id) => !left.has(id)).map((id) => `${id}:${Object.keys(page.blocks[id]?.out ?? {})[0]}`), optimizer, numbers);
      close();
      setTimeout(fit, 100);
    } catch (error) {
      setProblem(wordsOf(error));
    }
  };
  return (
    <Modal title="Train" onClose={close}>
      <DialogForm yes="Add training" commit={commit} disabled={!loss || variables.length === left.size} problem={problem}>
        {outputs.length === 0 && <p className="dim">No output of this page is a single number yet: end the model with a loss and ReduceMean.</p>}
        <label className="line">
          Loss
          <select aria-label="Loss" data-first value={loss} onChange={(event) => setLoss(event.target.value)}>
            {outputs.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <fieldset>
          <legend>Variables</legend>
          {variables.length === 0 && <p className="dim">The loss does not depend on a variable.</p>}
          {variables.map((id) => (
            <label key={id} className="choice">
              <input type="checkbox" aria-label={id} checked={!left.has(id)} onChange={() => setLeft(toggled(left, id))} /> {id} <span className="dim">{Object.values(page.blocks[id]?.out ?? {})[0]?.text}</span>
            </label>
          ))}
        </fieldset>
        <label className="line">
          Optimizer
          <select aria-label="Optimizer" value={optimizer} onChange={(event) => setOptimizer(event.target.value)}>
            {optimizers.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {Object.entries(settings).map(([name, value]) => (
          <label className="line" key={name}>
            {name}
            <input type="text" inputMode="decimal" aria-label={name} value={typed[name] ?? String(value)} onChange={(event) => setTyped({ ...typed, [name]: event.target.value })} />
          </label>
        ))}
      </DialogForm>
    </Modal>
  );
}
