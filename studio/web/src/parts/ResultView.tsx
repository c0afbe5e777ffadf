// One output of a block: what it is, its numbers, colours or texts. In the card it has a fixed room; enlarged, it can be looked at in more ways.

import { memo, useMemo, useState, type KeyboardEvent } from "react";
import { columnsFor, elementAt } from "../logic/numbers";
import type { Value } from "../protocol";
import { openDialog, say, useStore } from "../store";
import { downloadOutput, light } from "../studio";
import { HeatMap } from "./HeatMap";
import { Icon } from "./Icon";
import { Menu } from "./Menu";

interface Props {
  block: string;
  pin: string;
  value: Value;
  stale: boolean;
}

const NONE: number[] = [];
const ROOM = 35; // characters in a card

export const ResultView = memo(function ResultView({ block, pin, value, stale }: Props) {
  const lit = useStore((state) => state.lit[`out ${block}:${pin}`] ?? NONE);
  const label = `${pin} of ${block}`;
  const downloads = () => [
    { label: "Download as .npy", do: () => void downloadOutput(block, pin, "npy") },
    { label: "Download as .csv", do: () => void downloadOutput(block, pin, "csv") },
  ];
  return (
    <section className={`result${stale ? " stale" : ""}`} role="region" aria-label={label}>
      <div className="result-head">
        <strong>{pin}</strong>
        <span className="signal">{value.signal}</span>
        {value.odd && (
          <span className="odd-mark" title={`${value.odd} among ${value.shape.reduce((product, size) => product * size, 1)} elements`}>
            {value.odd}
          </span>
        )}
        {stale && <span className="stale-mark">stale</span>}
        <span className="result-tools">
          <Menu label={`Download ${label}`} className="quiet tiny nodrag" items={downloads}>
            <Icon name="download" />
          </Menu>
          <button type="button" className="quiet tiny nodrag" aria-label={`Enlarge ${label}`} title="Enlarge" onClick={() => openDialog({ kind: "result", block, pin })}>
            <Icon name="expand" />
          </button>
        </span>
      </div>
      {value.kind === "empty" && <p className="dim">no elements</p>}
      {value.kind === "heat" && (
        <HeatMap value={value} label={label} width={222} height={62} lit={lit} onRow={(row) => void light(block, pin, row)} />
      )}
      {value.kind === "cells" && <Cells block={block} pin={pin} value={value} lit={lit} label={label} room={ROOM} />}
    </section>
  );
});

interface CellsProps {
  block: string;
  pin: string;
  value: Value;
  lit: number[];
  label: string;
  room: number;
}

function Cells({ block, pin, value, lit, label, room }: CellsProps) {
  const [active, setActive] = useState<number | null>(null);
  const { cells } = value;
  // A vector is told as one line where it is short, so that it takes as little room as it needs.
  const flat = value.shape.length === 1 && cells.length <= 12 && value.dtype !== "string";
  const head = flat || value.shape.length === 0 ? 0 : String(cells.length - 1).length + 1.4;
  const fitted = useMemo(() => columnsFor(flat ? [cells.map(([text]) => text ?? "")] : cells, room, head), [cells, flat, room, head]);
  const count = fitted.cells[0]?.length ?? 0;
  const partly = fitted.shown < count;
  const style = { ["--cell" as string]: `${fitted.width}ch`, ["--head" as string]: `${head}ch`, ...(partly ? { maxWidth: `calc(${fitted.shown} * (${fitted.width}ch + var(--cell-gap)) + ${head}ch)` } : {}) };
  const go = (row: number | null): void => {
    setActive(row);
    void light(block, pin, row);
  };
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, ArrowRight: flat ? 1 : 0, ArrowLeft: flat ? -1 : 0 }[event.key];
    if (event.key === "Enter" && active !== null) why(active, 0);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const row = Math.max(0, Math.min(cells.length - 1, active === null ? 0 : active + step));
    go(row);
    say(`${label}, row ${row}: ${cells[row]?.join(", ")}`);
  };
  /** A click asks why; a drag selects numbers to be copied. */
  const why = (row: number, column: number): void => {
    if (!String(getSelection())) openDialog({ kind: "result", block, pin, element: elementAt(value.shape, row, column) });
  };
  const mark = (row: number): string | undefined => [lit.includes(row) ? "lit" : "", row === active ? "active" : ""].join(" ").trim() || undefined;
  return (
    <>
      <div className={`cells nowheel nodrag${partly ? " partly" : ""}`} style={style} tabIndex={0} onKeyDown={keys} onBlur={() => go(null)} onPointerLeave={() => go(null)}>
        <table>
          <tbody>
            {flat ? (
              <tr>
                {(fitted.cells[0] ?? []).map((text, row) => (
                  <td key={row} className={mark(row)} title={cells[row]?.[0]} onPointerEnter={() => go(row)} onClick={() => why(row, 0)}>
                    {text}
                  </td>
                ))}
              </tr>
            ) : (
              fitted.cells.map((row, at) => (
                <tr key={at} className={mark(at)} onPointerEnter={() => go(at)}>
                  {value.shape.length > 0 && <th scope="row">{at}</th>}
                  {row.map((text, column) => (
                    <td key={column} title={cells[at]?.[column]} onClick={() => why(at, column)}>
                      {text}
                    </td>
                  ))}
                </tr>
              ))
            )}
          </tbody>
        </table>
      </div>
      {(partly || fitted.rounded) && (
        <p className="cells-more">
          {partly ? `${fitted.shown} of ${count} columns; scroll, or enlarge` : ""}
          {partly && fitted.rounded ? " · " : ""}
          {fitted.rounded ? "rounded" : ""}
        </p>
      )}
    </>
  );
}
