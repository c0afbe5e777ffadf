// The form of a dialog: what is asked, what is wrong with it, and the buttons. Enter is the first button, Escape the last.

import type { ReactNode } from "react";
import { openDialog } from "../store";

interface Props {
  yes: string; // the button that does it
  commit: () => void | Promise<void>;
  disabled?: boolean;
  problem?: string | null;
  problemId?: string;
  more?: ReactNode; // buttons in between
  children: ReactNode;
}

export const closeDialog = (): void => openDialog(null);
/** A choice of several, with one more or one less. */
export function toggled(chosen: Set<string>, name: string): Set<string> {
  const next = new Set(chosen);
  if (!next.delete(name)) next.add(name);
  return next;
}

export const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export function DialogForm({ yes, commit, disabled, problem, problemId, more, children }: Props) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void commit();
      }}
    >
      {children}
      {problem && (
        <p className="field-error" id={problemId}>
          {problem}
        </p>
      )}
      <div className="buttons">
        <button type="submit" className="primary" data-first disabled={disabled}>
          {yes}
        </button>
        {more}
        <button type="button" onClick={closeDialog}>
          Cancel
        </button>
      </div>
    </form>
  );
}
