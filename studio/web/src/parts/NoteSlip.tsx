// A note on the page: a slip of paper. Double-click or Enter edits it; emptied, it is gone.

import type { NodeProps } from "@xyflow/react";
import { memo, useEffect, useRef, useState } from "react";
import { noteOf } from "../logic/flow";
import { store, useStore } from "../store";
import { changeNote } from "../studio";

export const NoteSlip = memo(function NoteSlip({ id }: NodeProps) {
  const note = useStore((state) => state.page.notes.find((item) => item.id === noteOf(id)));
  const editing = useStore((state) => state.editingNote === id);
  const [draft, setDraft] = useState<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (editing) {
      area.current?.focus();
      area.current?.select();
    }
  }, [editing]);
  if (!note) return null;
  const done = (): void => {
    store.set({ editingNote: null });
    if (draft !== null && draft !== note.text) void changeNote(note.id, draft);
    setDraft(null);
  };
  if (!editing) {
    return (
      <div className="note" onDoubleClick={() => store.set({ editingNote: id })}>
        {note.text}
      </div>
    );
  }
  return (
    <div className="note">
      <textarea
        ref={area}
        className="nodrag nowheel"
        aria-label={`Text of note ${note.id}`}
        value={draft ?? note.text}
        rows={Math.min(12, Math.max(2, (draft ?? note.text).split("\n").length))}
        onChange={(event) => setDraft(event.target.value)}
        onBlur={done}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            setDraft(null);
            store.set({ editingNote: null });
          } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            event.stopPropagation();
            done();
          }
        }}
      />
    </div>
  );
});
