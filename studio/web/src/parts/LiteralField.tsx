// What is typed into a pin or an attribute: one line of text, strictly read, and a table of cells beside it.

import { useRef, useState } from "react";
import { asSource, isLarge, isTable, read, shapeOf, textOf, type Literal } from "../logic/literal";
import type { Source } from "../protocol";
import { Field } from "./Field";
import { Icon } from "./Icon";
import { TableEditor } from "./TableEditor";

interface Props {
  label: string; // indices of SparseSegmentMeanGrad
  at: { block: string; pin: string };
  literal: Literal | null;
  dtypes: string[];
  about: string; // type and shape, for a literal that is too large to be shown
  placeholder: string;
  lit?: number[];
  bare?: boolean; // without a tooltip: there is room for all of it
  onCommit: (source: Source) => Promise<unknown>; // null clears
  onText: () => void;
}

export function LiteralField({ label, at, literal, dtypes, about, placeholder, lit, bare, onCommit, onText }: Props) {
  const [table, setTable] = useState(false);
  const [typing, setTyping] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const onlyText = dtypes.length > 0 && dtypes.every((dtype) => dtype === "string");
  const text = literal ? textOf(literal.value, !onlyText || Array.isArray(literal.value)) : "";

  if (literal && isLarge(literal)) {
    return (
      <button type="button" className="literal large nodrag" aria-label={`${label}: ${about}; edit as text`} title="Edit as text" onClick={onText}>
        {about}
      </button>
    );
  }

  const commit = async (draft: string): Promise<void> => {
    let source: Source = null;
    if (draft.trim() !== "" || (onlyText && literal)) {
      const found = read(draft, dtypes);
      if (!found.ok) throw new Error(found.place.length ? `At [${found.place.join("][")}]: ${found.message}` : found.message);
      source = asSource(found.value, literal?.dtype ?? null, dtypes);
    } else if (!literal) return;
    await onCommit(source);
  };
  const canTable = literal !== null && isTable(literal.value);
  return (
    <span className={`literal${lit?.length ? " lit" : ""}`}>
      {/* Before the field: it stays where it is when the field grows and shrinks with the focus. */}
      {canTable && shapeOf(literal.value).length > 0 && (
        <button ref={button} type="button" className="quiet tiny nodrag" aria-label={`Edit ${label} as a table`} aria-expanded={table} title="Edit as a table" onClick={() => setTable(!table)}>
          <Icon name="table" />
        </button>
      )}
      <Field
        label={label}
        at={at}
        className="nodrag nopan"
        text={text}
        placeholder={placeholder}
        size={(shown) => Math.max(5, Math.min(30, shown.length || placeholder.length))}
        title={bare ? undefined : text || undefined}
        commit={commit}
        onDraft={setTyping}
      />
      {lit && lit.length > 0 && literal && Array.isArray(literal.value) && !typing && (
        <span className="lit-line" aria-hidden="true">
          [{literal.value.map((item, at) => (
            <span key={at}>
              {at > 0 && ", "}
              {lit.includes(at) ? <mark>{textOf(item)}</mark> : textOf(item)}
            </span>
          ))}
          ]
        </span>
      )}
      {table && canTable && (
        <TableEditor
          label={label}
          literal={literal}
          dtypes={dtypes}
          lit={lit}
          onCommit={onCommit}
          onText={onText}
          onClose={() => {
            setTable(false);
            button.current?.focus();
          }}
        />
      )}
    </span>
  );
}
