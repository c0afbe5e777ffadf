// One line of text that belongs to the document: a draft while it is typed, kept by Enter or by leaving the field. What is refused stays
// readable, but the field says that it does not hold, and so does the list of problems. Undo belongs to the document: after it is kept, a
// field is drawn anew, because browsers have one text history for all fields of a page.

import { useEffect, useId, useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";
import { refuse, say, takeBack } from "../store";

interface Props {
  label: string; // indices of SparseSegmentMeanGrad
  at?: { block: string; pin: string }; // where it is listed among the problems
  text: string; // what holds
  commit: (draft: string) => Promise<unknown>; // throws what is wrong
  className?: string;
  placeholder?: string;
  size?: (shown: string) => number;
  title?: string;
  numeric?: boolean;
  selects?: boolean; // all of it when it gets the focus
  onDraft?: (isDraft: boolean) => void;
}

const short = (text: string): string => (text.length > 60 ? `${text.slice(0, 59)}…` : text);

export function Field({ label, at, text, commit, className, placeholder, size, title, numeric, selects, onDraft }: Props) {
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [edition, setEdition] = useState(0);
  const field = useRef<HTMLInputElement>(null);
  const sent = useRef<string | null>(null); // a draft that is on its way
  const returns = useRef(false); // to a field that is drawn anew
  const errorId = useId();

  const drop = (): void => {
    setDraft(null);
    setError(null);
  };
  useEffect(() => drop(), [text]);
  useEffect(() => onDraft?.(draft !== null), [draft !== null]);
  useEffect(() => {
    if (error === null) return;
    refuse(label, { message: error, block: at?.block ?? null, pin: at?.pin ?? null, code: "not-taken" });
    return () => takeBack(label);
  }, [error, label, at?.block, at?.pin]);
  useLayoutEffect(() => {
    if (!returns.current) return;
    returns.current = false;
    field.current?.focus({ preventScroll: true });
    field.current?.setSelectionRange(field.current.value.length, field.current.value.length);
  }, [edition]);

  const keep = async (): Promise<void> => {
    if (draft === null || draft === sent.current) return;
    if (draft === text) return drop();
    sent.current = draft;
    try {
      await commit(draft);
      setDraft((now) => (now === draft ? null : now));
      setError(null);
      returns.current = document.activeElement === field.current;
      setEdition((before) => before + 1);
    } catch (problem) {
      const message = problem instanceof Error ? problem.message : String(problem);
      setError(message);
      say(`${label}: ${message}`, true);
    } finally {
      sent.current = null;
    }
  };
  const keys = (event: KeyboardEvent): void => {
    const control = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (key === "enter" || (control && key === "s")) void keep(); // before the page is run or saved
    else if (key === "escape" && draft !== null) {
      event.stopPropagation();
      drop();
    } else if (control && key === "z" && !event.shiftKey && draft !== null && draft !== sent.current) {
      event.preventDefault(); // what was typed is the last step
      drop();
    }
  };
  return (
    <>
      <input
        key={edition}
        ref={field}
        type="text"
        className={className}
        aria-label={label}
        aria-invalid={error !== null}
        aria-describedby={error ? errorId : undefined}
        value={draft ?? text}
        placeholder={placeholder}
        spellCheck={false}
        autoComplete="off"
        inputMode={numeric ? "numeric" : undefined}
        size={size?.(draft ?? text)}
        title={title}
        onFocus={selects ? (event) => event.target.select() : undefined}
        onChange={(event) => {
          setDraft(event.target.value);
          setError(null);
        }}
        onKeyDown={keys}
        onBlur={() => void keep()}
      />
      {error && (
        <span className="field-error" id={errorId}>
          {error} <span className="kept">{text ? `Not applied: ${short(text)} still holds.` : "Not applied: there is no value yet."}</span>
        </span>
      )}
    </>
  );
}
