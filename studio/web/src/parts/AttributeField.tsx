// Attributes of blocks, each edited by its kind: a tick, a number, a type from a list, a text, a shape, a value.

import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { literalOf, readLeaf, readShape, type Nested } from "../logic/literal";
import type { AttributeDoc, Block, Source } from "../protocol";
import { openDialog, say, useStore } from "../store";
import { complain } from "../line";
import { change } from "../studio";
import { LiteralField } from "./LiteralField";

interface Props {
  block: Block;
  attribute: AttributeDoc;
}

export function AttributeField({ block, attribute }: Props) {
  const { name, kind } = attribute;
  const label = `${name} of ${block.id}`;
  const given = block.attrs[name];
  const set = (value: Source): Promise<unknown> => change(block.id, { [name]: value });
  return (
    <div className="card-row attribute" title={attribute.doc}>
      <span className="attribute-name" aria-hidden="true">
        {name}
      </span>
      {kind === "bool" && (
        <input
          type="checkbox"
          className="nodrag"
          aria-label={label}
          checked={Boolean(given ?? attribute.default)}
          onChange={(event) => void set(event.target.checked).catch(complain)}
        />
      )}
      {kind === "dtype" && <TypeField label={label} attribute={attribute} given={String(given ?? "")} onCommit={(dtype) => set(dtype || null)} />}
      {kind === "value" && <ValueField block={block} name={name} label={label} onCommit={set} />}
      {(kind === "text" || kind === "int" || kind === "float" || kind === "shape" || kind === "list") && (
        <LineField label={label} kind={kind} given={given} fallback={attribute.default} required={attribute.required} onCommit={set} />
      )}
    </div>
  );
}

/** A type from the list. Typed letters choose step by step, so that what is typed is sent when the keys rest: one gesture. */
function TypeField({ label, attribute, given, onCommit }: { label: string; attribute: AttributeDoc; given: string; onCommit: (dtype: string) => Promise<unknown> }) {
  const [draft, setDraft] = useState<string | null>(null);
  const waiting = useRef<{ timer: ReturnType<typeof setTimeout>; dtype: string } | null>(null);
  const typing = useRef(false);
  useEffect(() => setDraft(null), [given]);
  const commit = (dtype: string): void => {
    waiting.current = null;
    if (dtype === given) return setDraft(null);
    onCommit(dtype).catch((error: unknown) => {
      setDraft(null);
      complain(error);
    });
  };
  const flush = (): void => {
    if (!waiting.current) return;
    clearTimeout(waiting.current.timer);
    commit(waiting.current.dtype);
  };
  const choose = (dtype: string): void => {
    setDraft(dtype);
    if (waiting.current) clearTimeout(waiting.current.timer);
    if (typing.current) waiting.current = { dtype, timer: setTimeout(() => commit(dtype), 400) };
    else commit(dtype);
  };
  return (
    <select
      className="nodrag"
      aria-label={label}
      value={draft ?? given}
      onChange={(event) => choose(event.target.value)}
      onKeyDown={(event) => {
        typing.current = true;
        if (event.key === "Enter" || event.ctrlKey || event.metaKey) flush();
      }}
      onPointerDown={() => {
        typing.current = false;
      }}
      onBlur={() => {
        flush();
        typing.current = false;
      }}
    >
      {!attribute.required && <option value="">{attribute.default ? String(attribute.default) : "by value"}</option>}
      {attribute.dtypes.map((dtype) => (
        <option key={dtype}>{dtype}</option>
      ))}
    </select>
  );
}

function ValueField({ block, name, label, onCommit }: { block: Block; name: string; label: string; onCommit: (source: Source) => Promise<unknown> }) {
  const all = useStore((state) => state.catalogue?.dtypes ?? []);
  const given = block.attrs[name];
  const literal = typeof given === "string" ? { value: given as Nested, dtype: null, shape: null, file: null } : literalOf(given);
  const dtype = block.attrs["dtype"];
  return (
    <LiteralField
      label={label}
      literal={literal}
      dtypes={typeof dtype === "string" ? [dtype] : all}
      about={Object.values(block.out)[0]?.text ?? ""}
      placeholder="value"
      onCommit={(source) => onCommit(source)}
      onText={() => openDialog({ kind: "text", block: block.id, name, attribute: true })}
    />
  );
}

interface LineProps {
  label: string;
  kind: "text" | "int" | "float" | "shape" | "list";
  given: Source | undefined;
  fallback: unknown;
  required: boolean;
  onCommit: (source: Source) => Promise<unknown>;
}

function written(given: unknown): string {
  if (given === undefined || given === null) return "";
  return Array.isArray(given) ? `[${given.join(", ")}]` : String(given);
}

function LineField({ label, kind, given, fallback, required, onCommit }: LineProps) {
  const text = written(given);
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const errorId = useId();
  useEffect(() => {
    setDraft(null);
    setError(null);
  }, [text]);
  const fail = (message: string): void => {
    setError(message);
    say(`${label}: ${message}`, true);
  };
  const sourceOf = (typed: string): { ok: true; value: Source } | { ok: false; message: string } => {
    if (typed.trim() === "" && !required) return { ok: true, value: null };
    if (kind === "text") return { ok: true, value: typed };
    if (kind === "shape" || kind === "list") return readShape(typed);
    const found = readLeaf(typed, [kind === "int" ? "int64" : "float64"]);
    return found.ok ? { ok: true, value: found.value as unknown as Source } : found;
  };
  const commit = async (): Promise<void> => {
    if (draft === null || draft === text) return setDraft(null);
    const source = sourceOf(draft);
    if (!source.ok) return fail(source.message);
    try {
      await onCommit(source.value);
      setDraft(null);
    } catch (problem) {
      fail(problem instanceof Error ? problem.message : String(problem));
    }
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "Enter") void commit();
    else if (event.key === "Escape") {
      setDraft(null);
      setError(null);
    }
  };
  return (
    <span className={`literal${error ? " wrong" : ""}`}>
      <input
        type="text"
        className="nodrag nopan"
        aria-label={label}
        aria-invalid={error !== null}
        aria-describedby={error ? errorId : undefined}
        value={draft ?? text}
        placeholder={kind === "shape" ? "any shape" : fallback === null ? "" : written(fallback)}
        spellCheck={false}
        autoComplete="off"
        inputMode={kind === "int" || kind === "float" ? "numeric" : undefined}
        onChange={(event) => {
          setDraft(event.target.value);
          setError(null);
        }}
        onKeyDown={keys}
        onBlur={() => void commit()}
      />
      {error && (
        <span className="field-error" id={errorId}>
          {error}
        </span>
      )}
    </span>
  );
}
