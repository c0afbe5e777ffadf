// A pin: a button at the edge of a card, told by shape and colour. A wire is dragged from it, or begun with Enter.

import { Handle, Position } from "@xyflow/react";
import { memo, useState, type KeyboardEvent, type MouseEvent } from "react";
import { lookOf, outline } from "../logic/pins";
import type { Look } from "../protocol";
import { openDialog, store, useStore } from "../store";
import { connect, disconnect, endWire, startWire } from "../studio";
import { MenuList } from "./Menu";

export function Glyph({ look, hollow }: { look: Look; hollow?: boolean }) {
  const points = outline(look.shape);
  const open = hollow || look.shape === "ring";
  return (
    <svg className={`glyph${open ? " hollow" : ""}`} viewBox="-8 -8 16 16" width="16" height="16" aria-hidden="true" focusable="false" style={{ ["--pin" as string]: look.colour }}>
      {points ? <polygon points={points} /> : <circle r="5" />}
    </svg>
  );
}

/** A pin of a card that is seen from afar: React Flow finds its place for the wires, and nothing listens. */
export const FarPin = memo(function FarPin({ block, pin, kind, colour }: { block: string; pin: string; kind: "input" | "output"; colour: string }) {
  const side = kind === "input" ? "left" : "right";
  return (
    <div
      className={`react-flow__handle react-flow__handle-${side} pin far ${kind === "input" ? "target" : "source"}`}
      data-handleid={pin}
      data-nodeid={block}
      data-handlepos={side}
      style={{ ["--pin" as string]: colour }}
    />
  );
});

interface Props {
  block: string;
  pin: string;
  kind: "input" | "output";
  dtype: string | null;
  about: string; // type and shape, for the tooltip
  wired: boolean;
  missing?: boolean;
}

export const Pin = memo(function Pin({ block, pin, kind, dtype, about, wired, missing }: Props) {
  const name = `${block}:${pin}`;
  const look = useStore((state) => lookOf(state.catalogue?.looks, dtype));
  const state = useStore(({ wiring }) => {
    if (!wiring) return "";
    if (wiring.from === name && wiring.kind === kind) return "from";
    if (wiring.kind === kind) return "dim";
    return wiring.fits ? (wiring.fits.has(name) ? "fits" : "dim") : "";
  });
  const error = useStore(({ pinErrors }) => (kind === "input" ? pinErrors[name] : undefined));
  const [menu, setMenu] = useState<DOMRect | null>(null);

  /** Begins a wire here, or ends the one that was begun elsewhere. */
  const use = (): void => {
    const { wiring } = store.get();
    if (wiring && wiring.kind !== kind) {
      void (kind === "input" ? connect(wiring.from, name) : connect(name, wiring.from));
      endWire();
    } else if (wiring?.from === name) endWire();
    else void startWire(name, kind, "keyboard");
  };
  const keys = (event: KeyboardEvent<HTMLDivElement>): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return; // Ctrl Enter runs the page
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      use();
    } else if ((event.key === "Delete" || event.key === "Backspace") && kind === "input" && wired) {
      event.preventDefault();
      event.stopPropagation();
      void disconnect(name);
    } else if (event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey)) {
      event.preventDefault();
      setMenu(event.currentTarget.getBoundingClientRect());
    }
  };
  const context = (event: MouseEvent<HTMLDivElement>): void => {
    event.preventDefault();
    event.stopPropagation();
    setMenu(event.currentTarget.getBoundingClientRect());
  };
  const items =
    kind === "output"
      ? [
          { label: "Add gradients from here", do: () => openDialog({ kind: "gradients", output: name }) },
          { label: "Start a wire", do: () => void startWire(name, kind, "keyboard"), keys: "Enter" },
        ]
      : [
          { label: "Start a wire", do: () => void startWire(name, kind, "keyboard"), keys: "Enter" },
          { label: "Edit as text", do: () => openDialog({ kind: "text", block, name: pin, attribute: false }) },
          { label: "Remove", do: () => void disconnect(name), disabled: !wired, keys: "Del" },
        ];
  return (
    <>
      <Handle
        type={kind === "input" ? "target" : "source"}
        position={kind === "input" ? Position.Left : Position.Right}
        id={pin}
        role="button"
        tabIndex={0}
        aria-label={`${pin} ${kind} of ${block}`}
        aria-pressed={state === "from" ? true : undefined}
        title={`${pin}: ${about}`}
        className={`pin ${kind} ${state}${error ? " wrong" : ""}`}
        data-pin={`${kind} ${name}`}
        onKeyDown={keys}
        onClick={(event) => {
          event.stopPropagation();
          use();
        }}
        onContextMenu={context}
      >
        <Glyph look={look} hollow={missing} />
      </Handle>
      {error && (
        <div className="pin-error" role="note">
          {error}
        </div>
      )}
      {menu && <MenuList label={`Actions of ${pin} ${kind} of ${block}`} items={items} anchor={menu} onClose={() => setMenu(null)} />}
    </>
  );
});
