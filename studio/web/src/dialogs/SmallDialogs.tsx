// Renaming, a literal as text, questions, and the list of keys.

import { useState } from "react";
import { asSource, literalOf, read, textOf, type Nested } from "../logic/literal";
import { closeDialog as close, DialogForm, wordsOf as words } from "../parts/DialogForm";
import { Modal } from "../parts/Modal";
import { store, type Dialog } from "../store";
import { change, rename } from "../studio";

export function RenameDialog({ block }: { block: string }) {
  const [name, setName] = useState(block);
  const [problem, setProblem] = useState<string | null>(null);
  const commit = async (): Promise<void> => {
    if (name.trim() === block) return close();
    try {
      await rename(block, name.trim());
      close();
    } catch (error) {
      setProblem(words(error));
    }
  };
  return (
    <Modal title={`Rename ${block}`} onClose={close}>
      <DialogForm yes="Rename" commit={commit} problem={problem}>
        <label className="line">
          Name
          <input type="text" aria-label="Name" data-first spellCheck={false} aria-invalid={problem !== null} value={name} onFocus={(event) => event.target.select()} onChange={(event) => setName(event.target.value)} />
        </label>
      </DialogForm>
    </Modal>
  );
}

export function TextDialog({ block: id, name, attribute }: { block: string; name: string; attribute: boolean }) {
  const { page, operators, catalogue } = store.get();
  const block = page.blocks[id];
  const given = attribute ? block?.attrs[name] : block?.inputs[name];
  const literal = typeof given === "string" ? { value: given as Nested, dtype: null, shape: null, file: null } : literalOf(given);
  const fixed = attribute ? block?.attrs["dtype"] : undefined;
  const all = (attribute ? catalogue?.dtypes : operators.get(block?.op ?? "")?.inputs.find((pin) => pin.name === name)?.dtypes) ?? [];
  const [text, setText] = useState(literal && !literal.file ? rowsOf(literal.value) : "");
  const [dtype, setDtype] = useState(literal?.dtype ?? (typeof fixed === "string" ? fixed : ""));
  const [problem, setProblem] = useState<string | null>(null);
  const commit = async (): Promise<void> => {
    const found = read(text, dtype ? [dtype] : all);
    if (!found.ok) return setProblem(found.place.length ? `At [${found.place.join("][")}]: ${found.message}` : found.message);
    try {
      const own = attribute && "dtype" in (block?.attrs ?? {});
      await change(id, { [name]: asSource(found.value, attribute ? null : dtype || null, all), ...(own && dtype ? { dtype } : {}) });
      close();
    } catch (error) {
      setProblem(words(error));
    }
  };
  return (
    <Modal title={`${name} of ${id} as text`} onClose={close} wide>
      <DialogForm yes="Apply" commit={commit} problem={problem}>
        {literal?.file && <p className="dim">The numbers are stored in a file. Text typed here replaces them.</p>}
        <textarea className="as-text" aria-label={`Text of ${name} of ${id}`} aria-invalid={problem !== null} data-first spellCheck={false} rows={14} value={text} onChange={(event) => setText(event.target.value)} />
        <label className="line">
          Type
          <select aria-label="Type" value={dtype} onChange={(event) => setDtype(event.target.value)}>
            <option value="">as written</option>
            {all.map((item) => (
              <option key={item}>{item}</option>
            ))}
          </select>
        </label>
      </DialogForm>
    </Modal>
  );
}

/** A matrix with one row a line. */
function rowsOf(value: Nested): string {
  return Array.isArray(value) && value.some(Array.isArray) ? `[${value.map((row) => textOf(row)).join(",\n ")}]` : textOf(value);
}

export function AskDialog({ title, text, yes, answer }: Extract<Dialog, { kind: "ask" }>) {
  const say = (agreed: boolean): void => {
    close();
    answer(agreed);
  };
  return (
    <Modal title={title} onClose={() => say(false)}>
      <p>{text}</p>
      <div className="buttons">
        <button type="button" className="primary" onClick={() => say(true)}>
          {yes}
        </button>
        <button type="button" data-first onClick={() => say(false)}>
          Cancel
        </button>
      </div>
    </Modal>
  );
}

const KEYS: [string, [string, string][]][] = [
  ["Page", [["Ctrl O", "Open"], ["Ctrl S", "Save"], ["Ctrl Z", "Undo"], ["Ctrl Shift Z, Ctrl Y", "Redo"], ["?", "This list"]]],
  ["Blocks", [["Ctrl K, double-click", "Search and add a block"], ["Shift double-click", "Add a note"], ["Enter, Space on a block", "Select it; with Shift, one more"], ["Arrows", "Move the selection; with Shift, further; in the palette, the next operator"], ["F2", "Rename"], ["Ctrl X, Ctrl C, Ctrl V, Ctrl D", "Cut, copy, paste, duplicate"], ["Alt drag", "Drag a copy"], ["Ctrl G, Ctrl Shift G", "Group, ungroup"], ["Ctrl A", "Select all"], ["Delete", "Delete blocks, or the wire at a pin"], ["Alt L, Alt T", "Line up left, at the top"]]],
  ["Wires", [["Enter on a pin", "Start or end a wire there"], ["Tab", "While wiring: the next pin that fits"], ["Escape", "Cancel the wire"], ["Drag a wire's end", "Move it to another pin; dropped on nothing, it is removed"], ["Shift F10 on a pin", "Actions of the pin"], ["Right button", "Actions of a wire, a block, the canvas"]]],
  ["Run", [["Ctrl Enter", "Run"], ["Escape, while it runs", "Stop"], ["Arrows on a result", "Read it row by row, and light up where rows came from"]]],
  ["View", [["F", "Fit all into view"], ["+, −", "Zoom"], ["Shift drag", "Select with a frame"]]],
];

export function ShortcutsDialog() {
  return (
    <Modal title="Shortcuts" onClose={close} wide>
      <div className="keys">
        {KEYS.map(([title, lines]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {lines.map(([keys, what]) => (
                <div key={keys}>
                  <dt>
                    <kbd>{keys}</kbd>
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Modal>
  );
}
