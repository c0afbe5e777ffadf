// A larger array as colours: blue below zero, orange above, near-white at zero; the value under the pointer or the cursor in words.

import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { brief, css, heatSize, pixels, placeText, shade } from "../logic/heat";
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
  // A vector comes as one column, and is drawn as a band.
  const isBand = value.shape.length === 1;
  const heat = value.heat;
  const values = useMemo(() => (heat && isBand ? [heat.values.map((row) => row[0] ?? null)] : (heat?.values ?? [])), [heat, isBand]);
  const rows = values.length;
  const columns = values[0]?.length ?? 0;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<{ row: number; column: number } | null>(null);
  const most = heat ? Math.max(Math.abs(heat.low), Math.abs(heat.high)) : 0;
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !heat) return;
    const { width: wide, height: high, data } = pixels(values, most);
    context.putImageData(new ImageData(data, wide, high), 0, 0);
  }, [heat, values, most]);
  if (!heat) return null;

  const { width: wide, height: high } = heatSize(rows, columns, width, height);
  const tell = (at: { row: number; column: number }): string => {
    const found = values[at.row]?.[at.column];
    const mean = heat.row_step * heat.column_step > 1 ? "mean " : "";
    return `${placeText(isBand ? at.column : at.row, isBand ? 0 : at.column, heat.row_step, heat.column_step, value.shape)}: ${mean}${found === null || found === undefined ? "not a number" : brief(found)}`;
  };
  const point = (at: { row: number; column: number } | null): void => {
    setCell(at);
    onRow?.(at ? (isBand ? at.column : at.row) * heat.row_step : null);
  };
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = {
      row: Math.max(0, Math.min(rows - 1, (cell?.row ?? 0) + (cell ? (step[0] as number) : 0))),
      column: Math.max(0, Math.min(columns - 1, (cell?.column ?? 0) + (cell ? (step[1] as number) : 0))),
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
          width={columns}
          height={rows}
          role="img"
          tabIndex={0}
          aria-label={`Heat-map of ${label}: ${value.signal}, ${value.summary}. Arrow keys read cells.`}
          style={{ width: wide, height: high }}
          onPointerMove={(event) => {
            const box = event.currentTarget.getBoundingClientRect();
            const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
            const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
            if (row >= 0 && column >= 0 && row < rows && column < columns && (row !== cell?.row || column !== cell.column)) point({ row, column });
          }}
          onPointerLeave={() => point(null)}
          onBlur={() => point(null)}
          onKeyDown={keys}
        />
        {litBands.map((row) => (
          <span key={row} className="heat-lit" style={isBand ? { left: (row / columns) * wide, width: Math.max(2, wide / columns), top: 0, bottom: 0 } : { top: (row / rows) * high, height: Math.max(2, high / rows), left: 0, right: 0 }} />
        ))}
        {cell && (
          <span
            className="heat-cell"
            style={{ left: (cell.column / columns) * wide, top: (cell.row / rows) * high, width: wide / columns, height: high / rows }}
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
