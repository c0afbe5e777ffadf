// A literal as a table of cells, below its field. Each change of a cell, row or column is one gesture.

import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { asSource, blankFor, readLeaf, shapeOf, tableOf, textOf, withCell, withColumn, withoutColumn, withoutRow, withRow, type Leaf, type Literal, type Nested } from "../logic/literal";
import type { Source } from "../protocol";
import { say } from "../store";
import { Field } from "./Field";
import { Icon } from "./Icon";

interface Props {
  label: string;
  literal: Literal;
  dtypes: string[];
  lit?: number[];
  onCommit: (source: Source) => Promise<unknown>;
  onText: () => void;
  onClose: () => void;
}

export function TableEditor({ label, literal, dtypes, lit, onCommit, onText, onClose }: Props) {
  const { value, dtype } = literal;
  const takes = dtype ? [dtype] : dtypes;
  const rows = tableOf(value);
  const isMatrix = shapeOf(value).length === 2;
  const size = Math.max(6, Math.min(16, Math.max(...rows.flat().map((leaf) => textOf(leaf).length)))); // none is cut, but long texts
  const panel = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => panel.current?.querySelector("input")?.focus(), []);

  const commit = async (next: Nested, as = dtype): Promise<string | null> => {
    try {
      await onCommit(asSource(next, as, dtypes));
      setProblem(null);
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  };
  const shape = (next: Nested): void => {
    void commit(next).then((message) => {
      setProblem(message);
      if (message) say(`${label}: ${message}`, true);
    });
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onClose();
    }
  };
  const blank = blankFor(value, takes);
  return (
    <div ref={panel} className="table-editor nodrag nopan nowheel" role="dialog" aria-label={`Table of ${label}`} onKeyDown={keys}>
      <div className="table-scroll">
        <table>
          <tbody>
            {rows.map((row, r) => (
              <tr key={r} className={lit?.includes(isMatrix ? r : -1) ? "lit" : undefined}>
                {isMatrix && <th scope="row">{r}</th>}
                {row.map((leaf, c) => (
                  <td key={c} className={!isMatrix && lit?.includes(c) ? "lit" : undefined}>
                    <Cell label={`${label}, row ${r}, column ${c}`} leaf={leaf} dtypes={takes} size={size} onCommit={(next) => commit(withCell(value, r, c, next))} />
                  </td>
                ))}
                {isMatrix && (
                  <td>
                    <button type="button" className="quiet tiny" aria-label={`Remove row ${r} of ${label}`} title={`Remove row ${r}`} onClick={() => shape(withoutRow(value, r))}>
                      <Icon name="remove" />
                    </button>
                  </td>
                )}
              </tr>
            ))}
            <tr>
              {isMatrix && <td />}
              {(rows[0] ?? []).map((_, c) => (
                <td key={c}>
                  <button type="button" className="quiet tiny" aria-label={`Remove column ${c} of ${label}`} title={`Remove column ${c}`} onClick={() => shape(withoutColumn(value, c))}>
                    <Icon name="remove" />
                  </button>
                </td>
              ))}
            </tr>
          </tbody>
        </table>
      </div>
      {problem && <p className="field-error">{problem}</p>}
      <div className="table-tools">
        <button type="button" onClick={() => shape(withRow(value, blank))}>
          Add row
        </button>
        <button type="button" onClick={() => shape(withColumn(value, blank))}>
          Add column
        </button>
        <button type="button" onClick={onText}>
          Edit as text
        </button>
        <select
          aria-label={`Type of ${label}`}
          value={dtype ?? ""}
          onChange={(event) => void commit(value, event.target.value || null).then(setProblem)}
        >
          <option value="">type of the pin</option>
          {dtypes.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <button type="button" onClick={onClose}>
          Done
        </button>
      </div>
    </div>
  );
}

function Cell({ label, leaf, dtypes, size, onCommit }: { label: string; leaf: Leaf; dtypes: string[]; size: number; onCommit: (leaf: Leaf) => Promise<string | null> }) {
  const onlyText = dtypes.length > 0 && dtypes.every((dtype) => dtype === "string");
  const text = textOf(leaf, !onlyText);
  const commit = async (draft: string): Promise<void> => {
    const found = readLeaf(draft, dtypes);
    const message = found.ok ? await onCommit(found.value as Leaf) : found.message;
    if (message) throw new Error(message);
  };
  return (
    <span className="cell">
      <Field label={label} text={text} title={text} size={() => size} selects commit={commit} />
    </span>
  );
}
