// Search for an operator, and put it on the page; where a wire was dropped, only what fits is offered.

import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import type { Place } from "../logic/arrange";
import { find, type Found } from "../logic/search";
import { Modal } from "../parts/Modal";
import { openDialog, useStore, type Adding } from "../store";
import { addBlock } from "../studio";
import { jumpTo, placeForNew, placeNear } from "../view";

const MOST = 60;

export function AddDialog({ adding }: { adding: Adding }) {
  const catalogue = useStore((state) => state.catalogue);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const titles = useMemo(() => Object.fromEntries(catalogue?.families.map(({ name, title }) => [name, title]) ?? []), [catalogue]);
  const tints = useMemo(() => Object.fromEntries(catalogue?.families.map(({ name, header }) => [name, header]) ?? []), [catalogue]);
  const found = useMemo(() => find(catalogue?.operators ?? [], titles, query, adding.wire?.operators ?? null).slice(0, MOST), [catalogue, titles, query, adding]);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at, found]);

  const choose = async (item: Found | undefined): Promise<void> => {
    if (!item) return;
    openDialog(null);
    const { wire } = adding;
    if (item.operator.name === "Batches" && !wire) return openDialog({ kind: "data", path: null, at: adding.at });
    const joined: Record<string, string> | undefined = wire && item.pin ? (wire.kind === "output" ? { source: wire.from, pin: item.pin } : { pin: item.pin, target: wire.from }) : undefined;
    const place: Place = adding.at ? (wire ? placeNear(adding.at) : adding.at) : placeForNew();
    const id = await addBlock(item.operator.name, place, joined ? { connect: joined } : {});
    if (id) jumpTo(id);
  };
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (step) {
      event.preventDefault();
      setAt(Math.max(0, Math.min(found.length - 1, at + step)));
    } else if (event.key === "Enter") {
      event.preventDefault();
      void choose(found[at]);
    }
  };
  return (
    <Modal title="Add a block" onClose={() => openDialog(null)} bare>
      {adding.wire && <p className="dim add-wire">{adding.wire.kind === "output" ? `Takes ${adding.wire.from}` : `Feeds ${adding.wire.from}`}</p>}
      <input
        type="text"
        className="add-search"
        role="combobox"
        aria-label="Search operators"
        aria-expanded="true"
        aria-controls="add-list"
        aria-autocomplete="list"
        aria-activedescendant={found[at] ? `add-${found[at].operator.name}` : undefined}
        placeholder="Search operators"
        data-first
        spellCheck={false}
        autoComplete="off"
        value={query}
        onChange={(event) => {
          setQuery(event.target.value);
          setAt(0);
        }}
        onKeyDown={keys}
      />
      <div ref={list} id="add-list" className="add-list" role="listbox" aria-label="Operators" tabIndex={-1}>
        {found.map((item, position) => (
          <div
            key={item.operator.name}
            id={`add-${item.operator.name}`}
            role="option"
            aria-selected={position === at}
            className="add-option"
            style={{ ["--tint" as string]: tints[item.operator.family] }}
            onPointerMove={() => setAt(position)}
            onClick={() => void choose(item)}
          >
            <span className="swatch" />
            <strong>{item.operator.name}</strong>
            {item.pin && <span className="dim">at {item.pin}</span>}
            <span className="dim summary">{item.operator.summary}</span>
          </div>
        ))}
      </div>
      {!found.length && <p className="dim">{adding.wire && !query ? "No operator fits this pin." : "No operator matches."}</p>}
    </Modal>
  );
}
