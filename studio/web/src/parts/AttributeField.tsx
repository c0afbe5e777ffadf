// Attributes of blocks, each edited by its kind: a tick, a number, a type from a list, a text, a shape, a value.

import { useEffect, useRef, useState } from "react";
import { literalOf, readLeaf, readNumbers, readShape, type Nested } from "../logic/literal";
import type { AttributeDoc, Block, Source } from "../protocol";
import { openDialog, useStore } from "../store";
import { complain } from "../line";
import { change } from "../studio";
import { Field } from "./Field";
import { LiteralField } from "./LiteralField";

interface Props {
  block: Block;
  attribute: AttributeDoc;
  also?: string[]; // other blocks that are changed with it
  inspected?: boolean; // beside the canvas: the card has a field of the same name
}

export function AttributeField({ block, attribute, also = [], inspected }: Props) {
  const { name, kind } = attribute;
  const label = inspected ? `Inspected ${name}` : `${name} of ${also.length ? `${also.length + 1} blocks` : block.id}`;
  const given = block.attrs[name];
  const set = (value: Source): Promise<unknown> => change(block.id, { [name]: value }, also);
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
      {kind === "value" && <ValueField block={block} name={name} label={label} bare={inspected} onCommit={set} />}
      {(kind === "text" || kind === "int" || kind === "float" || kind === "shape" || kind === "list" || kind === "numbers") && (
        <LineField block={block.id} name={name} label={label} kind={kind} given={given} fallback={attribute.default} required={attribute.required} onCommit={set} />
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

function ValueField({ block, name, label, bare, onCommit }: { block: Block; name: string; label: string; bare?: boolean; onCommit: (source: Source) => Promise<unknown> }) {
  const all = useStore((state) => state.catalogue?.dtypes ?? []);
  const given = block.attrs[name];
  const literal = typeof given === "string" ? { value: given as Nested, dtype: null, shape: null, file: null } : literalOf(given);
  const dtype = block.attrs["dtype"];
  return (
    <LiteralField
      label={label}
      bare={bare}
      at={{ block: block.id, pin: name }}
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
  block: string;
  name: string;
  label: string;
  kind: "text" | "int" | "float" | "shape" | "list" | "numbers";
  given: Source | undefined;
  fallback: unknown;
  required: boolean;
  onCommit: (source: Source) => Promise<unknown>;
}

function written(given: unknown): string {
  if (given === undefined || given === null) return "";
  return Array.isArray(given) ? `[${given.join(", ")}]` : String(given);
}

function LineField({ block, name, label, kind, given, fallback, required, onCommit }: LineProps) {
  const sourceOf = (typed: string): Source => {
    if (typed.trim() === "" && !required) return null;
    if (kind === "text") return typed;
    if (kind === "numbers") {
      const numbers = readNumbers(typed);
      if (!numbers.ok) throw new Error(numbers.message);
      return numbers.value as unknown as Source;
    }
    const found = kind === "shape" || kind === "list" ? readShape(typed) : readLeaf(typed, [kind === "int" ? "int64" : "float64"]);
    if (!found.ok) throw new Error(found.message);
    return found.value as unknown as Source;
  };
  return (
    <span className="literal">
      <Field
        label={label}
        at={{ block, pin: name }}
        className="nodrag nopan"
        text={written(given)}
        placeholder={kind === "shape" ? "any shape" : fallback === null ? "" : written(fallback)}
        numeric={kind === "int" || kind === "float"}
        commit={async (typed) => onCommit(sourceOf(typed))}
      />
    </span>
  );
}
