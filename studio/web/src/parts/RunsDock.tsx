// The runs below the canvas: a chart that grows with its room, and the list of runs, which can be named, hidden, resumed and exported.

import { useMemo, type KeyboardEvent, type PointerEvent } from "react";
import { scaleOf } from "../logic/chart";
import { colourOfRun } from "../logic/chartPicture";
import { brief } from "../logic/heat";
import type { Recording } from "../logic/runs";
import { exportCsv, exportPng, openSweep, removeRuns, renameRun, resume } from "../runs";
import { store, useStore } from "../store";
import { Field } from "./Field";
import { Icon } from "./Icon";
import { Menu } from "./Menu";
import { RunChart } from "./RunChart";

const LEAST = 120;
const most = (): number => Math.max(LEAST, innerHeight - 260);
const set = (change: Partial<ReturnType<typeof store.get>["dock"]>): void => store.set(({ dock }) => ({ dock: { ...dock, ...change } }));
const resize = (height: number): void => set({ height: Math.round(Math.max(LEAST, Math.min(most(), height))) });

export function RunsDock() {
  const runs = useStore((state) => state.runs);
  const hidden = useStore((state) => state.hiddenRuns);
  const dock = useStore((state) => state.dock);
  const steps = useStore((state) => (state.progress?.running && state.progress.run !== null ? state.progress.steps : 0));
  const evaluated = useStore((state) => state.evaluated);
  const shown = useMemo(() => runs.filter((run) => !hidden.has(run.id)), [runs, hidden]);
  const colours = useMemo(() => new Map(runs.map((run, at) => [run.id, at])), [runs]);
  const fitting = useMemo(() => scaleOf(shown.flatMap((run) => Object.values(run.values).flatMap((values) => values.map((value) => value ?? NaN)))).log, [shown]);
  const log = dock.log ?? fitting;
  const held = Object.entries(evaluated);
  if (!runs.length && !held.length) return null;
  if (!dock.open) {
    return (
      <section className="dock closed" aria-label="Runs">
        <button type="button" className="problems-head" aria-expanded="false" onClick={() => set({ open: true })}>
          <Icon name="right" />
          {runs.length === 1 ? "1 run" : `${runs.length} runs`}
        </button>
      </section>
    );
  }
  return (
    <section className="dock" aria-label="Runs" style={{ height: dock.height }}>
      <Grip height={dock.height} />
      <div className="dock-tools">
        <button type="button" className="quiet tiny" aria-label="Hide the chart" title="Hide the chart" aria-expanded="true" onClick={() => set({ open: false })}>
          <Icon name="down" />
        </button>
        <label>
          <input type="checkbox" aria-label="Logarithmic scale" checked={log} onChange={() => set({ log: !log })} /> log
        </label>
        <label>
          smooth
          <input type="range" aria-label="Smoothing" min={0} max={0.99} step={0.01} value={dock.smooth} onChange={(event) => set({ smooth: Number(event.target.value) })} />
        </label>
        <span className="spring" />
        <button type="button" onClick={openSweep}>
          Sweep
        </button>
        <Menu
          label="Export runs"
          className="with-icon"
          items={() => [
            { label: "Values as CSV", do: exportCsv },
            { label: "Chart as PNG", do: () => void exportPng() },
          ]}
        >
          Export <Icon name="down" />
        </Menu>
        <button type="button" disabled={!runs.length} onClick={() => void removeRuns(runs.map((run) => run.id))}>
          Clear
        </button>
      </div>
      <figure className="dock-figure" aria-label="Recorded values">
        <RunChart runs={shown} colours={colours} steps={steps} log={dock.log} smooth={dock.smooth} />
        <figcaption tabIndex={0} aria-label="List of runs">
          {held.map(([name, value]) => (
            <p key={name} className="evaluated">
              {name}: {value === null ? "not a number" : brief(value)}
            </p>
          ))}
          <ul>
            {runs.toReversed().map((run) => (
              <RunLine key={run.id} run={run} colour={colourOfRun(colours.get(run.id) ?? 0)} hidden={hidden.has(run.id)} />
            ))}
          </ul>
        </figcaption>
      </figure>
    </section>
  );
}

/** The upper edge: dragged, or moved by the arrow keys. */
function Grip({ height }: { height: number }) {
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowUp: 24, ArrowDown: -24, Home: most(), End: -most() }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    resize(height + step);
  };
  const drag = (event: PointerEvent<HTMLDivElement>): void => {
    const [from, begun] = [event.clientY, height];
    event.currentTarget.setPointerCapture(event.pointerId);
    event.currentTarget.onpointermove = (moved) => resize(begun + from - moved.clientY);
    event.currentTarget.onpointerup = ({ currentTarget }) => {
      (currentTarget as HTMLElement).onpointermove = null;
    };
  };
  return <div className="grip" role="separator" aria-orientation="horizontal" aria-label="Height of the chart" aria-valuenow={height} aria-valuemin={LEAST} aria-valuemax={most()} tabIndex={0} onKeyDown={keys} onPointerDown={drag} />;
}

function RunLine({ run, colour, hidden }: { run: Recording; colour: string; hidden: boolean }) {
  const busy = useStore((state) => Boolean(state.progress?.running));
  const toggle = (): void =>
    store.set(({ hiddenRuns }) => {
      const next = new Set(hiddenRuns);
      if (!next.delete(run.id)) next.add(run.id);
      return { hiddenRuns: next };
    });
  return (
    <li className="run">
      <input type="checkbox" aria-label={`Show ${run.name}`} checked={!hidden} onChange={toggle} />
      <span className="run-key" style={{ background: colour }} />
      <Field label={`Name of run ${run.id}`} text={run.name} title={run.about || run.name} size={(shown) => Math.max(6, Math.min(20, shown.length + 1))} commit={(typed) => renameRun(run.id, typed)} />
      <span className="run-words">
        {Object.entries(run.values).map(([output, values]) => (
          <span key={output}>{wordsOf(output, values)}</span>
        ))}
        {run.paused && <strong> paused after step {run.steps} of {run.asked}</strong>}
      </span>
      {run.paused && (
        <button type="button" disabled={busy} aria-label={`Resume ${run.name}`} onClick={() => void resume(run)}>
          Resume
        </button>
      )}
      <button type="button" className="quiet tiny" aria-label={`Remove ${run.name}`} title="Remove" onClick={() => void removeRuns([run.id])}>
        <Icon name="close" />
      </button>
    </li>
  );
}

function wordsOf(output: string, values: (number | null)[]): string {
  const known = values.filter((value) => value !== null);
  const [first, last] = [known[0], known.at(-1)];
  return `${output}: ${first === undefined ? "no numbers" : `${brief(first)} in step 1, ${brief(last as number)} in step ${values.length}`}`;
}
