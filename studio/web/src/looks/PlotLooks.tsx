// Histograms, and columns as lines, bars or points.

import { useState } from "react";
import { ticksOf } from "../logic/chart";
import { brief } from "../logic/heat";
import type { Histogram, Series } from "../protocol";
import { labelOf, sizesOf, useLook, type Looked } from "./look";

const WIDTH = 860;
const HEIGHT = 340;
const LEFT = 60;

function Axes({ low, high, left, right }: { low: number; high: number; left: string; right: string }) {
  return (
    <>
      {ticksOf(low, high).map((tick) => {
        const y = HEIGHT - ((tick - low) / (high - low || 1)) * HEIGHT;
        return (
          <g key={tick}>
            <path className="chart-grid" d={`M0 ${y}H${WIDTH}`} />
            <text className="chart-tick" x={-6} y={y + 4} textAnchor="end">
              {brief(tick)}
            </text>
          </g>
        );
      })}
      <text className="chart-tick" x={0} y={HEIGHT + 18}>
        {left}
      </text>
      <text className="chart-tick" x={WIDTH} y={HEIGHT + 18} textAnchor="end">
        {right}
      </text>
    </>
  );
}

function ColumnField({ label, columns, value, onChange, all }: { label: string; columns: number; value: number | null; onChange: (column: number | null) => void; all?: string }) {
  return (
    <label>
      {label}{" "}
      <input
        type="number"
        aria-label={label}
        min={0}
        max={columns - 1}
        placeholder={all}
        value={value ?? ""}
        onChange={(event) => onChange(event.target.value === "" && all ? null : Math.max(0, Math.min(columns - 1, Math.floor(Number(event.target.value) || 0))))}
      />
    </label>
  );
}

export function HistogramLook({ looked }: { looked: Looked }) {
  const { columns } = sizesOf(looked.value);
  const [of, setOf] = useState<number | null>(null);
  const [over, setOver] = useState<number | null>(null);
  const { found, problem } = useLook<Histogram>(looked, "histogram", { of, bins: 60 });
  if (problem) return <p className="field-error">{problem}</p>;
  if (!found) return <p className="dim">Counting …</p>;
  const most = Math.max(1, ...found.counts);
  const wide = WIDTH / Math.max(1, found.counts.length);
  const odd = [found.nans && `${found.nans} NaN`, found.above && `${found.above} +infinity`, found.below && `${found.below} −infinity`].filter(Boolean).join(", ");
  const words = `${found.elements.toLocaleString("en")} elements; ${odd || "no NaN, no infinities"}; ${found.zeros.toLocaleString("en")} zeros${found.mean === null ? "" : `; min ${brief(found.least ?? 0)}, mean ${brief(found.mean)}, max ${brief(found.largest ?? 0)}`}`;
  return (
    <div>
      {columns > 1 && (
        <div className="look-tools">
          <ColumnField label="Column" columns={columns} value={of} onChange={setOf} all="all" />
        </div>
      )}
      <svg className="plot" viewBox={`0 0 ${LEFT + WIDTH + 10} ${HEIGHT + 40}`} role="img" aria-label={`Histogram of ${labelOf(looked)}: ${words}`}>
        <g transform={`translate(${LEFT} 10)`}>
          <Axes low={0} high={most} left={brief(found.edges[0] ?? 0)} right={brief(found.edges.at(-1) ?? 0)} />
          {found.counts.map((count, at) => (
            <rect key={at} className={`bar${at === over ? " over" : ""}`} x={at * wide + 0.5} width={Math.max(0.5, wide - 1)} y={HEIGHT - (count / most) * HEIGHT} height={(count / most) * HEIGHT} onPointerEnter={() => setOver(at)} onPointerLeave={() => setOver(null)} />
          ))}
        </g>
      </svg>
      <p className="heat-words">{over === null ? words : `${found.counts[over]} from ${brief(found.edges[over] ?? 0)} to ${brief(found.edges[over + 1] ?? 0)}`}</p>
    </div>
  );
}

type Kind = "line" | "bar" | "scatter";

export function PlotLook({ looked }: { looked: Looked }) {
  const { columns } = sizesOf(looked.value);
  const [kind, setKind] = useState<Kind>("line");
  const [x, setX] = useState(0);
  const [y, setY] = useState(Math.min(1, columns - 1));
  const [over, setOver] = useState<number | null>(null);
  const points = kind === "scatter" && columns > 1;
  const { found, problem } = useLook<Series>(looked, "series", { series: points ? `${x},${y}` : String(y) });
  if (problem) return <p className="field-error">{problem}</p>;
  if (!found) return <p className="dim">Looking …</p>;
  const down = (points ? found.values[1] : found.values[0]) ?? [];
  const across = points ? (found.values[0] ?? []) : found.ids;
  const range = (values: (number | null)[], zero: boolean): [number, number] => {
    const known = values.filter((value) => value !== null);
    const [low, high] = [known.reduce((a, b) => Math.min(a, b), zero ? 0 : (known[0] ?? 0)), known.reduce((a, b) => Math.max(a, b), zero ? 0 : (known[0] ?? 1))];
    return low === high ? [low - 1, high + 1] : [low, high];
  };
  const [low, high] = range(down, kind === "bar");
  const [left, right] = range(across, false);
  const toX = (value: number): number => ((value - left) / (right - left)) * WIDTH;
  const toY = (value: number): number => HEIGHT - ((value - low) / (high - low)) * HEIGHT;
  const wide = WIDTH / Math.max(1, down.length);
  const name = points ? `column ${y} over column ${x}` : columns > 1 ? `column ${y}` : "values";
  const path = down.map((value, at) => (value === null ? "" : `${at === 0 || down[at - 1] === null ? "M" : "L"}${toX(across[at] as number).toFixed(1)} ${toY(value).toFixed(1)}`)).join("");
  return (
    <div>
      <div className="look-tools">
        <label>
          As{" "}
          <select aria-label="Kind of plot" value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
            <option value="line">lines</option>
            <option value="bar">bars</option>
            {columns > 1 && <option value="scatter">points</option>}
          </select>
        </label>
        {points && <ColumnField label="Across" columns={columns} value={x} onChange={(column) => setX(column ?? 0)} />}
        {columns > 1 && <ColumnField label={points ? "Up" : "Column"} columns={columns} value={y} onChange={(column) => setY(column ?? 0)} />}
      </div>
      <svg className="plot" viewBox={`0 0 ${LEFT + WIDTH + 10} ${HEIGHT + 40}`} role="img" aria-label={`${kind === "line" ? "Line" : kind === "bar" ? "Bar" : "Scatter"} plot of ${labelOf(looked)}: ${name}, ${down.length} points`}>
        <g transform={`translate(${LEFT} 10)`}>
          <Axes low={low} high={high} left={points ? brief(left) : `row ${left}`} right={points ? brief(right) : `row ${right}`} />
          {kind === "line" && <path className="run-line" d={path} style={{ stroke: "var(--accent)" }} />}
          {kind === "bar" && down.map((value, at) => value !== null && <rect key={at} className={`bar${at === over ? " over" : ""}`} x={at * wide} width={Math.max(0.5, wide - 1)} y={Math.min(toY(value), toY(0))} height={Math.abs(toY(value) - toY(0))} onPointerEnter={() => setOver(at)} />)}
          {points && down.map((value, at) => value !== null && across[at] !== null && <circle key={at} className={`dot-mark${at === over ? " over" : ""}`} cx={toX(across[at] as number)} cy={toY(value)} r={at === over ? 5 : 3} onPointerEnter={() => setOver(at)} />)}
        </g>
      </svg>
      <p className="heat-words">
        {over !== null && down[over] !== null && down[over] !== undefined
          ? `row ${found.ids[over]}: ${points ? `${brief(across[over] as number)}, ` : ""}${brief(down[over] as number)}`
          : `${name}${found.ids.length < sizesOf(looked.value).rows ? `; ${found.ids.length} of ${sizesOf(looked.value).rows} rows, taken evenly` : ""}`}
      </p>
    </div>
  );
}
