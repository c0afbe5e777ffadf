// A result as colours, with zoom: from means of many elements down to single values, which are then written in their cells.

import { useEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";
import { brief, colourOf, css, pixels } from "../logic/heat";
import { inside, moved, zoomed, type View } from "../logic/region";
import type { Region } from "../protocol";
import { say } from "../store";
import { labelOf, sizesOf, useLook, type Looked } from "./look";

const WIDTH = 900;
const HEIGHT = 460;
const TILES = 96;
const READABLE = 44; // pixels of a cell in which a number can be read

export function HeatLook({ looked, onElement }: { looked: Looked; onElement: (row: number, column: number) => void }) {
  const sizes = sizesOf(looked.value);
  const [view, setView] = useState<View>({ top: 0, bottom: sizes.rows, left: 0, right: sizes.columns });
  const [cell, setCell] = useState<{ row: number; column: number } | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { found, problem } = useLook<Region>(looked, "region", { down: `${view.top},${view.bottom}`, across: `${view.left},${view.right}`, most: TILES });
  const heat = found?.heat;
  const most = heat ? Math.max(Math.abs(heat.low), Math.abs(heat.high)) : 0;
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !heat) return;
    const { width, height, data } = pixels(heat.values, most);
    context.putImageData(new ImageData(data, width, height), 0, 0);
  }, [heat, most]);
  const go = (next: View): void => setView(inside(next, sizes.rows, sizes.columns));
  const at = (event: { clientX: number; clientY: number; currentTarget: Element }): { x: number; y: number } => {
    const box = event.currentTarget.getBoundingClientRect();
    return { x: Math.max(0, Math.min(0.999999, (event.clientX - box.left) / box.width)), y: Math.max(0, Math.min(0.999999, (event.clientY - box.top) / box.height)) };
  };
  // React listens to wheels passively; the page must not scroll instead.
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const point = { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
      setView((before) => inside(zoomed(before, event.deltaY < 0 ? 0.6 : 1 / 0.6, point.x, point.y), sizes.rows, sizes.columns));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [sizes.rows, sizes.columns, Boolean(heat)]);
  if (problem) return <p className="field-error">{problem}</p>;
  if (!found || !heat) return <p className="dim">Looking …</p>;

  const cellText = (row: number, column: number): string => {
    const value = heat.values[row]?.[column];
    const range = (from: number, step: number, last: number): string => (step > 1 && Math.min(from + step, last) - 1 > from ? `${from} to ${Math.min(from + step, last) - 1}` : String(from));
    return `row ${range(found.top + row * heat.row_step, heat.row_step, found.bottom)}, column ${range(found.left + column * heat.column_step, heat.column_step, found.right)}: ${heat.row_step * heat.column_step > 1 ? "mean " : ""}${value === null || value === undefined ? "not a number" : brief(value)}`;
  };
  const [wide, high] = [WIDTH / heat.columns, HEIGHT / heat.rows];
  const single = heat.row_step * heat.column_step === 1;
  const written = single && wide >= READABLE && high >= 15;
  const drag = (event: PointerEvent<HTMLCanvasElement>): void => {
    const [from, begun] = [at(event), view];
    event.currentTarget.setPointerCapture(event.pointerId);
    event.currentTarget.onpointermove = (next) => {
      const to = at(next as unknown as { clientX: number; clientY: number; currentTarget: Element });
      go(moved(begun, (from.y - to.y) * (begun.bottom - begun.top), (from.x - to.x) * (begun.right - begun.left)));
    };
    event.currentTarget.onpointerup = ({ currentTarget }) => {
      (currentTarget as HTMLElement).onpointermove = null;
    };
  };
  const keys = (event: KeyboardEvent): void => {
    const shift = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "+" || event.key === "=") go(zoomed(view, 0.6, 0.5, 0.5));
    else if (event.key === "-") go(zoomed(view, 1 / 0.6, 0.5, 0.5));
    else if (shift && event.shiftKey) go(moved(view, (shift[0] as number) * Math.ceil((view.bottom - view.top) / 4), (shift[1] as number) * Math.ceil((view.right - view.left) / 4)));
    else if (shift) {
      const next = { row: Math.max(0, Math.min(heat.rows - 1, (cell?.row ?? 0) + (cell ? (shift[0] as number) : 0))), column: Math.max(0, Math.min(heat.columns - 1, (cell?.column ?? 0) + (cell ? (shift[1] as number) : 0))) };
      setCell(next);
      say(cellText(next.row, next.column));
    } else if (event.key === "Enter" && cell && single) onElement(found.top + cell.row, found.left + cell.column);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div className="heat-look">
      <div className="look-tools">
        <button type="button" onClick={() => go(zoomed(view, 0.6, 0.5, 0.5))}>
          Zoom in
        </button>
        <button type="button" onClick={() => go(zoomed(view, 1 / 0.6, 0.5, 0.5))}>
          Zoom out
        </button>
        <button type="button" onClick={() => go({ top: 0, bottom: sizes.rows, left: 0, right: sizes.columns })}>
          Whole
        </button>
        <span className="dim">
          rows {found.top} to {found.bottom - 1}, columns {found.left} to {found.right - 1}
          {single ? ", single values" : `, each cell the mean of ${heat.row_step} × ${heat.column_step}`}; wheel zooms, drag moves
        </span>
      </div>
      <div className="heat-stage">
        <canvas
          ref={canvas}
          className="heat-map"
          width={heat.columns}
          height={heat.rows}
          role="img"
          tabIndex={0}
          data-first
          aria-label={`Heat-map of ${labelOf(looked)}: ${looked.value.signal}, rows ${found.top} to ${found.bottom - 1}, columns ${found.left} to ${found.right - 1}. Plus and minus zoom, Shift and arrows move, arrows read cells.`}
          onPointerDown={drag}
          onPointerMove={(event) => {
            const point = at(event);
            const next = { row: Math.floor(point.y * heat.rows), column: Math.floor(point.x * heat.columns) };
            if (next.row !== cell?.row || next.column !== cell.column) setCell(next);
          }}
          onPointerLeave={() => setCell(null)}
          onDoubleClick={(event) => {
            const point = at(event);
            if (single) onElement(found.top + Math.floor(point.y * heat.rows), found.left + Math.floor(point.x * heat.columns));
          }}
          onKeyDown={keys}
        />
        {written && (
          <svg className="heat-numbers" viewBox={`0 0 ${heat.columns} ${heat.rows}`} preserveAspectRatio="none" aria-hidden="true">
            {heat.values.flatMap((row, y) => row.map((value, x) => <rect key={`${y} ${x}`} x={x} y={y} width={1} height={1} fill={css(colourOf(value, most))} />))}
          </svg>
        )}
        {written && (
          <div className="heat-texts" role="list" aria-label="Values">
            {heat.values.flatMap((row, y) => row.map((value, x) => (
              <span key={`${y} ${x}`} role="listitem" style={{ left: `${(x / heat.columns) * 100}%`, top: `${(y / heat.rows) * 100}%`, width: `${100 / heat.columns}%`, height: `${100 / heat.rows}%`, color: ink(colourOf(value, most)) }} title={cellText(y, x)}>
                {value === null ? "NaN" : brief(value)}
              </span>
            )))}
          </div>
        )}
        {cell && <span className="heat-cell" style={{ left: `${(cell.column / heat.columns) * 100}%`, top: `${(cell.row / heat.rows) * 100}%`, width: `${100 / heat.columns}%`, height: `${100 / heat.rows}%` }} />}
      </div>
      <p className="heat-words">{cell && cell.row < heat.rows && cell.column < heat.columns ? cellText(cell.row, cell.column) : looked.value.summary}</p>
    </div>
  );
}

const ink = ([red, green, blue]: readonly [number, number, number]): string => (0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1f2933" : "#ffffff");
