// A result in large: as a table, colours, a histogram, a plot or a projection, and why a number is what it is; by itself, or less that of
// another run.

import { useEffect, useState } from "react";
import { HeatLook } from "../looks/HeatLook";
import type { Looked } from "../looks/look";
import { HistogramLook, PlotLook } from "../looks/PlotLooks";
import { ProjectionLook } from "../looks/ProjectionLook";
import { elementAt } from "../logic/numbers";
import { TableLook } from "../looks/TableLook";
import { WhyLook } from "../looks/WhyLook";
import { closeDialog } from "../parts/DialogForm";
import { Icon } from "../parts/Icon";
import { Menu } from "../parts/Menu";
import { Modal } from "../parts/Modal";
import { store, useStore } from "../store";
import { downloadOutput } from "../studio";

const KINDS = ["Table", "Heat-map", "Histogram", "Plot", "Projection", "Why"] as const;
type Kind = (typeof KINDS)[number];

export function ResultDialog({ block, pin, element }: { block: string; pin: string; element?: number[] }) {
  const result = useStore((state) => state.results[block]);
  const runs = useStore((state) => state.runs);
  const before = useStore((state) => state.before);
  const value = result?.outputs[pin];
  const [kind, setKind] = useState<Kind>(element ? "Why" : value?.kind === "heat" ? "Heat-map" : "Table");
  const [asked, setAsked] = useState(element ?? null);
  const [against, setAgainst] = useState("");
  useEffect(() => store.set({ lookedAt: `${block} ${kind}` }), [block, kind]);
  if (!value) {
    return (
      <Modal title={`Result: ${block}:${pin}`} onClose={closeDialog} wide>
        <p className="dim">It no longer exists.</p>
      </Modal>
    );
  }
  const isText = value.dtype === "string";
  const isMatrix = value.shape.length > 1 && (value.shape.at(-1) ?? 0) > 1;
  const kinds = KINDS.filter((one) => one === "Table" || one === "Why" || (!isText && (one !== "Projection" || isMatrix)));
  const looked: Looked = { block, pin, value, against };
  const onElement = (row: number, column: number): void => {
    setAsked(elementAt(value.shape, row, column));
    setKind("Why");
  };
  const others = runs.filter((run) => run.compared);
  return (
    <Modal title={`Result: ${block}:${pin}`} onClose={closeDialog} huge>
      <div className="look-head">
        <div className="tabs" role="tablist" aria-label="View as">
          {kinds.map((one) => (
            <button key={one} type="button" role="tab" id={`look-${one}`} aria-selected={one === kind} aria-controls="look" tabIndex={one === kind ? 0 : -1} onClick={() => setKind(one)} onKeyDown={(event) => step(event.key, kinds, kind, setKind)}>
              {one === "Why" ? "Why this number?" : one}
            </button>
          ))}
        </div>
        <span className="signal">{value.signal}</span>
        {value.odd && <span className="odd-mark">{value.odd}</span>}
        {result.stale && <span className="stale-mark">stale</span>}
        <span className="spring" />
        {!isText && (before || others.length > 0) && (
          <label>
            Compare with{" "}
            <select aria-label="Compare with" value={against} onChange={(event) => setAgainst(event.target.value)}>
              <option value="">nothing</option>
              {before && <option value="before">the run before</option>}
              {others.map((run) => (
                <option key={run.id} value={run.id}>
                  {run.name}
                </option>
              ))}
            </select>
          </label>
        )}
        <Menu
          label={`Download ${pin} of ${block}`}
          className="quiet tiny"
          items={() => [
            { label: "Download as .npy", do: () => void downloadOutput(block, pin, "npy") },
            { label: "Download as .csv", do: () => void downloadOutput(block, pin, "csv") },
          ]}
        >
          <Icon name="download" />
        </Menu>
      </div>
      {against && <p className="dim">Shown is the difference: this result less that of {against === "before" ? "the run before" : (others.find((run) => String(run.id) === against)?.name ?? "a run")}.</p>}
      <div id="look" role="tabpanel" aria-labelledby={`look-${kind}`} className="look" key={`${kind} ${against}`}>
        {value.kind === "empty" ? <p className="dim">no elements</p> : null}
        {value.kind !== "empty" && kind === "Table" && <TableLook looked={looked} onElement={onElement} />}
        {value.kind !== "empty" && kind === "Heat-map" && <HeatLook looked={looked} onElement={onElement} />}
        {value.kind !== "empty" && kind === "Histogram" && <HistogramLook looked={looked} />}
        {value.kind !== "empty" && kind === "Plot" && <PlotLook looked={looked} />}
        {value.kind !== "empty" && kind === "Projection" && <ProjectionLook looked={looked} onRow={(row) => onElement(row, 0)} />}
        {value.kind !== "empty" && kind === "Why" && <WhyLook first={{ block, pin, index: asked ?? value.shape.map(() => 0) }} />}
      </div>
    </Modal>
  );
}

/** Tabs are one stop for Tab; arrows go from one to the next. */
function step(key: string, kinds: readonly Kind[], at: Kind, go: (kind: Kind) => void): void {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (!by) return;
  const next = kinds[(kinds.indexOf(at) + by + kinds.length) % kinds.length] as Kind;
  go(next);
  document.getElementById(`look-${next}`)?.focus();
}
