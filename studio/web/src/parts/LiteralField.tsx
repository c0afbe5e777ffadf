// What is typed into a pin or an attribute: one line of text, strictly read, and a table of cells beside it.

import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { asSource, isLarge, isTable, read, shapeOf, textOf, type Literal } from "../logic/literal";
import type { Source } from "../protocol";
import { say } from "../store";
import { Icon } from "./Icon";
import { TableEditor } from "./TableEditor";

interface Props {
  label: string; // indices of SparseSegmentMeanGrad
  literal: Literal | null;
  dtypes: string[];
  about: string; // type and shape, for a literal that is too large to be shown
  placeholder: string;
  lit?: number[];
  onCommit: (source: Source) => Promise<unknown>; // null clears
  onText: () => void;
}

export function LiteralField({ label, literal, dtypes, about, placeholder, lit, onCommit, onText }: Props) {
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [table, setTable] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const errorId = useId();
  const onlyText = dtypes.length > 0 && dtypes.every((dtype) => dtype === "string");
  const text = literal ? textOf(literal.value, !onlyText || Array.isArray(literal.value)) : "";
  useEffect(() => {
    setDraft(null);
    setError(null);
  }, [text]);

  if (literal && isLarge(literal)) {
    return (
      <button type="button" className="literal large nodrag" aria-label={`${label}: ${about}; edit as text`} title="Edit as text" onClick={onText}>
        {about}
      </button>
    );
  }

  const fail = (message: string): void => {
    setError(message);
    say(`${label}: ${message}`, true);
  };
  const commit = async (): Promise<void> => {
    if (draft === null || (draft === text && literal)) return setDraft(null);
    let source: Source = null;
    if (draft.trim() !== "" || (onlyText && literal)) {
      const found = read(draft, dtypes);
      if (!found.ok) return fail(found.place.length ? `At [${found.place.join("][")}]: ${found.message}` : found.message);
      source = asSource(found.value, literal?.dtype ?? null, dtypes);
    } else if (!literal) return setDraft(null);
    try {
      await onCommit(source);
      setDraft(null);
      setError(null);
    } catch (problem) {
      fail(problem instanceof Error ? problem.message : String(problem));
    }
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "Enter" || ((event.ctrlKey || event.metaKey) && event.key === "s")) void commit(); // before the page is run or saved
    else if (event.key === "Escape") {
      setDraft(null);
      setError(null);
    }
  };
  const canTable = literal !== null && isTable(literal.value);
  return (
    <span className={`literal${error ? " wrong" : ""}${lit?.length ? " lit" : ""}`}>
      <input
        ref={field}
        type="text"
        className="nodrag nopan"
        aria-label={label}
        aria-invalid={error !== null}
        aria-describedby={error ? errorId : undefined}
        value={draft ?? text}
        placeholder={placeholder}
        spellCheck={false}
        autoComplete="off"
        size={Math.max(5, Math.min(30, (draft ?? text).length || placeholder.length))}
        title={text || undefined}
        onChange={(event) => {
          setDraft(event.target.value);
          setError(null);
        }}
        onKeyDown={keys}
        onBlur={() => void commit()}
      />
      {canTable && shapeOf(literal.value).length > 0 && (
        <button type="button" className="quiet tiny nodrag" aria-label={`Edit ${label} as a table`} aria-expanded={table} title="Edit as a table" onClick={() => setTable(!table)}>
          <Icon name="table" />
        </button>
      )}
      {lit && lit.length > 0 && literal && Array.isArray(literal.value) && draft === null && (
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
      {error && (
        <span className="field-error" id={errorId}>
          {error}
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
            field.current?.focus();
          }}
        />
      )}
    </span>
  );
}
