// All operators, by family, and the blocks of this page. An operator is dragged onto the canvas, or put there by a click or Enter.

import { memo, useMemo, useState } from "react";
import { find } from "../logic/search";
import type { OperatorDoc } from "../protocol";
import { openDialog, store, useStore } from "../store";
import { addBlock } from "../studio";
import { jumpTo, placeForNew, reveal } from "../view";
import { insertOwn } from "../groups";
import { ArrowList } from "./ArrowList";
import { DRAGGED } from "./Canvas";
import { Icon } from "./Icon";

export function Palette() {
  const catalogue = useStore((state) => state.catalogue);
  const [query, setQuery] = useState("");
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const [tab, setTab] = useState<"operators" | "blocks">("operators");
  const titles = useMemo(() => Object.fromEntries(catalogue?.families.map(({ name, title }) => [name, title]) ?? []), [catalogue]);
  const found = useMemo(() => find(catalogue?.operators ?? [], titles, query, null).map((item) => item.operator), [catalogue, titles, query]);
  if (!catalogue) return null;
  const toggle = (name: string): void => {
    const next = new Set(closed);
    if (!next.delete(name)) next.add(name);
    setClosed(next);
  };
  return (
    <aside className="palette" aria-label="Palette" data-tour="palette">
      <div className="tabs" role="tablist" aria-label="Left panel">
        {(["operators", "blocks"] as const).map((name) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="palette-panel" onClick={() => setTab(name)}>
            {name === "operators" ? "Operators" : "On this page"}
          </button>
        ))}
      </div>
      <div id="palette-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} className="palette-panel">
        {tab === "blocks" ? (
          <Outline />
        ) : (
          <>
            <label className="search">
              <Icon name="search" />
              <input type="search" placeholder="Filter operators" aria-label="Filter operators" value={query} onChange={(event) => setQuery(event.target.value)} />
            </label>
            <ArrowList className="palette-list">
              {/* What is searched for stands in the order of likelihood. */}
              {query !== "" && found.map((operator) => <PaletteItem key={operator.name} operator={operator} />)}
              {query === "" && <OwnBlocks />}
              {catalogue.families.map(({ name, title, header, frame }) => {
                const members = query === "" ? catalogue.operators.filter((operator) => operator.family === name) : [];
                if (!members.length) return null;
                const open = !closed.has(name);
                return (
                  <section key={name} className="family" style={{ ["--tint" as string]: header, ["--frame" as string]: frame }}>
                    <h2>
                      <button type="button" className="family-head" aria-expanded={open} onClick={() => toggle(name)}>
                        <Icon name={open ? "down" : "right"} />
                        <span className="swatch" />
                        {title}
                      </button>
                    </h2>
                    {open && members.map((operator) => <PaletteItem key={operator.name} operator={operator} />)}
                  </section>
                );
              })}
              {found.length === 0 && <p className="dim">No operator answers to “{query}”.</p>}
            </ArrowList>
          </>
        )}
      </div>
    </aside>
  );
}

/** Groups that were saved as blocks. */
function OwnBlocks() {
  const own = useStore((state) => state.own);
  if (!own.length) return null;
  return (
    <section className="family">
      <h2 className="family-head own">Your blocks</h2>
      {own.map(({ path, name }) => (
        <button key={path} type="button" className="palette-item" aria-label={name} title={path} onClick={() => void insertOwn(path, placeForNew())}>
          <span>{name}</span>
        </button>
      ))}
    </section>
  );
}

const PaletteItem = memo(function PaletteItem({ operator }: { operator: OperatorDoc }) {
  const add = async (): Promise<void> => {
    if (operator.name === "Batches") return openDialog({ kind: "data", path: null, at: null });
    const id = await addBlock(operator.name, placeForNew());
    if (id) setTimeout(() => reveal(id), 60);
  };
  return (
    <button
      type="button"
      className="palette-item"
      draggable
      title={operator.summary}
      aria-label={operator.name}
      onClick={() => void add()}
      onFocus={(event) => event.currentTarget.matches(":focus-visible") && store.set({ shownOperator: operator.name })}
      onPointerEnter={() => store.get().selected === null && store.set({ shownOperator: operator.name })}
      onDragStart={(event) => {
        event.dataTransfer.setData(DRAGGED, operator.name);
        event.dataTransfer.effectAllowed = "copy";
      }}
    >
      <span>{operator.name}</span>
    </button>
  );
});

/** The blocks of the page as a list: a way to each of them without a mouse. */
function Outline() {
  const order = useStore((state) => state.page.order);
  const blocks = useStore((state) => state.page.blocks);
  const results = useStore((state) => state.results);
  if (!order.length) return <p className="dim">There are no blocks yet.</p>;
  return (
    <ArrowList>
      <ul className="outline">
        {order.map((id) => {
          const result = results[id];
          const status = result?.stale && result.status === "done" ? "stale" : result?.status === "waiting" ? "" : (result?.status ?? "");
          return (
            <li key={id}>
              <button type="button" className="palette-item" onClick={() => jumpTo(id)}>
                <span className="outline-id">
                  <span className="hidden">Go to </span>
                  {id}
                </span>
                <span className="dim">{blocks[id]?.op === id ? "" : blocks[id]?.op}</span>
                {status && <span className={`badge ${status}`}>{status}</span>}
              </button>
            </li>
          );
        })}
      </ul>
    </ArrowList>
  );
}
