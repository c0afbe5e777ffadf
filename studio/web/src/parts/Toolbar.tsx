// The row of buttons at the top: the page's name, keeping, changing, running.

import { useEffect, type ReactNode } from "react";
import { inCell } from "../host";
import { openDialog, store, useStore } from "../store";
import { pause, pausedRun, resume } from "../runs";
import { exportAs, redo, reset, run, save, setTitle, step, stop, tidy, undo } from "../studio";
import { newPage } from "../tabs";
import { fit, placeForNew } from "../view";
import { addNote } from "./Canvas";
import { Field } from "./Field";
import { Icon, type IconName } from "./Icon";
import { Menu } from "./Menu";

interface ToolProps {
  name: string;
  icon?: IconName;
  words?: boolean;
  keys?: string;
  disabled?: boolean;
  primary?: boolean;
  tour?: string;
  hint?: string;
  onClick: () => void;
}

function Tool({ name, icon, words, keys, disabled, primary, tour, hint, onClick }: ToolProps) {
  const title = `${hint ?? name}${keys ? ` (${keys})` : ""}`;
  return (
    <button type="button" className={`tool${primary ? " primary" : ""}${words ? "" : " only-icon"}`} aria-label={name} title={title} disabled={disabled} data-tour={tour} onClick={onClick}>
      {icon && <Icon name={icon} />}
      {words && <span>{name}</span>}
    </button>
  );
}

const Group = ({ label, children }: { label: string; children: ReactNode }) => (
  <div className="tools" role="group" aria-label={label}>
    {children}
  </div>
);

const toggle = (panel: "palette" | "inspector"): void => store.set(({ panels }) => ({ panels: { ...panels, [panel]: !panels[panel] } }));

const EXPORTS = [
  ["Python", "py"],
  ["SVG picture", "svg"],
  ["PNG picture", "png"],
  ["GraphDef, binary", "pb"],
  ["GraphDef, text", "pbtxt"],
  ["Page file", "page.json"],
] as const;

export function Toolbar() {
  const { undo: undoLabel, redo: redoLabel } = useStore((state) => state.page);
  const running = useStore((state) => Boolean(state.progress?.running));
  const looping = useStore((state) => Boolean(state.progress?.running && state.progress.run !== null));
  const waiting = useStore((state) => pausedRun(state.runs));
  const panels = useStore((state) => state.panels);
  const add = (): void => openDialog({ kind: "add", adding: { at: null, wire: null } });
  return (
    <header className="toolbar">
      <button type="button" className="tool only-icon" aria-label="Palette panel" aria-pressed={panels.palette} title="Show or hide the palette" onClick={() => toggle("palette")}>
        <Icon name="panel" />
      </button>
      <Title />
      <Group label="Page">
        {!inCell && <Tool name="New" words onClick={() => void newPage()} />}
        {!inCell && <Tool name="Open" words keys="Ctrl O" onClick={() => openDialog({ kind: "open" })} />}
        <Tool name="Save" words keys="Ctrl S" onClick={() => void save()} />
        {!inCell && <Tool name="Save as" words onClick={() => openDialog({ kind: "save as" })} />}
        <Menu label="Export" className="tool" items={() => EXPORTS.map(([label, as]) => ({ label, do: () => void exportAs(as) }))}>
          <span>Export</span>
          <Icon name="down" />
        </Menu>
      </Group>
      <Group label="Change">
        <Tool name="Undo" icon="undo" keys="Ctrl Z" hint={undoLabel ? `Undo: ${undoLabel}` : "Nothing to undo"} disabled={!undoLabel} onClick={() => void undo()} />
        <Tool name="Redo" icon="redo" keys="Ctrl Shift Z" hint={redoLabel ? `Redo: ${redoLabel}` : "Nothing to redo"} disabled={!redoLabel} onClick={() => void redo()} />
        <Tool name="Add block" icon="add" keys="Ctrl K" onClick={add} />
        <Tool name="Add data" icon="table" hint="Data from a file: columns, in batches" onClick={() => openDialog({ kind: "data", path: null, at: null })} />
        <Tool name="Add note" icon="note" onClick={() => void addNote(placeForNew())} />
        <Tool name="Tidy up" icon="tidy" onClick={() => void tidy().then((done) => done && fit())} />
        <Tool name="Fit" icon="fit" keys="F" hint="Fit all blocks into view" onClick={() => fit()} />
      </Group>
      <Group label="Run">
        <Tool name="Run" icon="run" words primary keys="Ctrl Enter" tour="run" disabled={running} onClick={() => void run()} />
        <Tool name="Step" icon="step" hint="Run the next block" disabled={running} onClick={() => void step()} />
        <Tool name="Train" words hint="Choose a loss, variables and an optimizer" disabled={running} onClick={() => openDialog({ kind: "train" })} />
        <Tool name="Loop" icon="loop" words hint="Run in a loop" disabled={running} onClick={() => openDialog({ kind: "loop" })} />
        <Tool name="Reset" icon="reset" hint="Reset results and variables" disabled={running} onClick={() => void reset()} />
        {looping && <Tool name="Pause" icon="pause" words hint="Pause the loop, to change something and resume" onClick={() => void pause()} />}
        {!running && waiting && <Tool name="Resume" icon="run" words hint={`Resume ${waiting.name}`} onClick={() => void resume(waiting)} />}
        <Tool name="Stop" icon="stop" words disabled={!running} onClick={() => void stop()} />
      </Group>
      <span className="spring" />
      <Group label="Help">
        {!inCell && <Tool name="Examples" words tour="examples" onClick={() => openDialog({ kind: "examples" })} />}
        <button type="button" className="tool" aria-label="Shortcuts" title="Shortcuts (?)" onClick={() => openDialog({ kind: "shortcuts" })}>
          <span aria-hidden="true">?</span>
        </button>
      </Group>
      <button type="button" className="tool only-icon" aria-label="Inspector panel" aria-pressed={panels.inspector} title="Show or hide the inspector" onClick={() => toggle("inspector")}>
        <Icon name="panelRight" />
      </button>
    </header>
  );
}

/** The name of the page, and whether it is saved. */
function Title() {
  const { name, path, dirty } = useStore((state) => state.page);
  useEffect(() => {
    document.title = `${dirty ? "● " : ""}${name || "page"} – rowgrad studio`;
  }, [name, dirty]);
  return (
    <div className="title">
      <Field
        label="Name of the page"
        text={name}
        size={(shown) => Math.max(8, Math.min(22, shown.length + 1))}
        title={path ?? "not saved yet"}
        commit={async (draft) => (draft.trim() ? setTitle(draft.trim()) : Promise.reject(new Error("A page needs a name.")))}
      />
      <span className={`dirty${dirty ? " yes" : ""}`} title={dirty ? "not saved" : "saved"}>
        {dirty ? "●" : ""}
        <span className="hidden">{dirty ? "not saved" : "saved"}</span>
      </span>
    </div>
  );
}
