// A larger array as colours: blue below zero, orange above, near-white at zero; the value under the pointer or the cursor in words.

import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { brief, css, pixels, placeText, shade } from "../logic/heat";
import type { Value } from "../protocol";
import { say } from "../store";

interface Props {
  value: Value;
  label: string;
  width: number;
  height: number;
  lit?: number[];
  onRow?: (row: number | null) => void;
}

export function HeatMap({ value, label, width, height, lit, onRow }: Props) {
  const heat = value.heat;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<{ row: number; column: number } | null>(null);
  const most = heat ? Math.max(Math.abs(heat.low), Math.abs(heat.high)) : 0;
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !heat) return;
    const { width: wide, height: high, data } = pixels(heat.values, most);
    context.putImageData(new ImageData(data, wide, high), 0, 0);
  }, [heat, most]);
  if (!heat) return null;

  // Cells are as square as the room allows; a vector becomes a band.
  const size = Math.min(width / heat.columns, height / heat.rows);
  const wide = Math.round(Math.max(size * heat.columns, heat.columns === 1 ? Math.min(28, width) : Math.min(width, heat.columns * 2)));
  const high = Math.round(Math.max(size * heat.rows, heat.rows === 1 ? Math.min(28, height) : Math.min(height, heat.rows * 2)));
  const tell = (at: { row: number; column: number }): string => {
    const found = heat.values[at.row]?.[at.column];
    const mean = heat.row_step * heat.column_step > 1 ? "mean " : "";
    return `${placeText(at.row, at.column, heat.row_step, heat.column_step, value.shape)}: ${mean}${found === null || found === undefined ? "not a number" : brief(found)}`;
  };
  const point = (at: { row: number; column: number } | null): void => {
    setCell(at);
    onRow?.(at ? at.row * heat.row_step : null);
  };
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = {
      row: Math.max(0, Math.min(heat.rows - 1, (cell?.row ?? 0) + (cell ? (step[0] as number) : 0))),
      column: Math.max(0, Math.min(heat.columns - 1, (cell?.column ?? 0) + (cell ? (step[1] as number) : 0))),
    };
    point(next);
    say(tell(next));
  };
  const litBands = [...new Set((lit ?? []).map((row) => Math.floor(row / heat.row_step)))];
  return (
    <div className="heat">
      <div className="heat-room" style={{ width: wide, height: high }}>
        <canvas
          ref={canvas}
          className="heat-map nodrag"
          width={heat.columns}
          height={heat.rows}
          role="img"
          tabIndex={0}
          aria-label={`Heat-map of ${label}: ${value.signal}, ${value.summary}. Arrow keys read cells.`}
          style={{ width: wide, height: high }}
          onPointerMove={(event) => {
            const box = event.currentTarget.getBoundingClientRect();
            const column = Math.floor(((event.clientX - box.left) / box.width) * heat.columns);
            const row = Math.floor(((event.clientY - box.top) / box.height) * heat.rows);
            if (row >= 0 && column >= 0 && row < heat.rows && column < heat.columns && (row !== cell?.row || column !== cell.column)) point({ row, column });
          }}
          onPointerLeave={() => point(null)}
          onBlur={() => point(null)}
          onKeyDown={keys}
        />
        {litBands.map((row) => (
          <span key={row} className="heat-lit" style={{ top: (row / heat.rows) * high, height: Math.max(2, high / heat.rows) }} />
        ))}
        {cell && (
          <span
            className="heat-cell"
            style={{ left: (cell.column / heat.columns) * wide, top: (cell.row / heat.rows) * high, width: wide / heat.columns, height: high / heat.rows }}
          />
        )}
      </div>
      <Legend low={heat.low} high={heat.high} most={most} />
      <div className="heat-words">{cell ? tell(cell) : value.summary}</div>
    </div>
  );
}

function Legend({ low, high, most }: { low: number; high: number; most: number }) {
  if (low === high) return null;
  const steps = 24;
  const zero = low < 0 && high > 0 ? (-low / (high - low)) * 100 : null;
  return (
    <div className="legend" aria-hidden="true">
      <svg viewBox={`0 0 ${steps} 1`} preserveAspectRatio="none">
        {Array.from({ length: steps }, (_, i) => (
          <rect key={i} x={i} width={1.05} height={1} fill={css(shade((low + ((high - low) * (i + 0.5)) / steps) / most))} />
        ))}
      </svg>
      <div className="legend-ends">
        <span>{brief(low)}</span>
        {zero !== null && <span>0</span>}
        <span>{brief(high)}</span>
      </div>
    </div>
  );
}
