// The rows of a matrix, such as an embedding table, projected onto their two principal components; labels on hover and by search.

import { useMemo, useState, type KeyboardEvent } from "react";
import { brief } from "../logic/heat";
import type { Projection } from "../protocol";
import { say, useStore } from "../store";
import { labelOf, sizesOf, useLook, type Looked } from "./look";

const WIDTH = 860;
const HEIGHT = 430;
const EDGE = 14;

/** Outputs of the page that can name the rows: one text or whole number for each. */
function useNames(rows: number, own: string): string[] {
  const results = useStore((state) => state.results);
  return useMemo(
    () => Object.entries(results).flatMap(([block, { outputs }]) => Object.entries(outputs).flatMap(([pin, { dtype, shape }]) => (shape.length === 1 && (shape[0] ?? 0) >= rows && /string|int/.test(dtype) && `${block}:${pin}` !== own ? [`${block}:${pin}`] : []))),
    [results, rows, own],
  );
}

export function ProjectionLook({ looked, onRow }: { looked: Looked; onRow: (row: number) => void }) {
  const { rows } = sizesOf(looked.value);
  const names = useNames(rows, `${looked.block}:${looked.pin}`);
  const [chosen, setLabels] = useState<string | null>(null);
  const labels = chosen ?? names[0] ?? "";
  const [over, setOver] = useState<number | null>(null);
  const [typed, setTyped] = useState("");
  const { found, problem } = useLook<Projection>(looked, "projection", { labels: labels || null });
  const box = useMemo(() => {
    const points = found?.points ?? [];
    const span = (axis: 0 | 1): [number, number] => {
      const [low, high] = [points.reduce((least, point) => Math.min(least, point[axis]), Infinity), points.reduce((most, point) => Math.max(most, point[axis]), -Infinity)];
      return low < high ? [low, high] : [low - 1, low + 1];
    };
    return points.length ? { x: span(0), y: span(1) } : null;
  }, [found]);
  if (problem) return <p className="field-error">{problem}</p>;
  if (!found || !box) return <p className="dim">Projecting …</p>;
  const x = (value: number): number => EDGE + ((value - box.x[0]) / (box.x[1] - box.x[0])) * (WIDTH - 2 * EDGE);
  const y = (value: number): number => HEIGHT - EDGE - ((value - box.y[0]) / (box.y[1] - box.y[0])) * (HEIGHT - 2 * EDGE);
  const nameOf = (at: number): string => (found.labels?.[at] ? `${found.labels[at]} (row ${found.ids[at]})` : `row ${found.ids[at]}`);
  const wanted = typed.trim().toLowerCase();
  const isWanted = (at: number): boolean => wanted !== "" && nameOf(at).toLowerCase().includes(wanted);
  const words = `${found.points.length === found.rows ? `${found.rows} rows` : `${found.points.length} of ${found.rows} rows`}; the axes show ${Math.round((found.shares[0] ?? 0) * 100)} % and ${Math.round((found.shares[1] ?? 0) * 100)} % of the variance${found.left_out ? `; ${found.left_out} rows that are not finite are left out` : ""}`;
  const keys = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && over !== null) onRow(found.ids[over] as number);
    else if (step) {
      const next = over === null ? 0 : (over + step + found.ids.length) % found.ids.length;
      setOver(next);
      say(`${nameOf(next)}: ${brief(found.points[next]?.[0] ?? 0)}, ${brief(found.points[next]?.[1] ?? 0)}`);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const few = found.points.length <= 60;
  return (
    <div>
      <div className="look-tools">
        {names.length > 0 && (
          <label>
            Labels{" "}
            <select aria-label="Labels" value={labels} onChange={(event) => setLabels(event.target.value)}>
              <option value="">row numbers</option>
              {names.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Find <input type="search" aria-label="Find a label" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
      </div>
      <div className="projection-room">
        <svg className="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" tabIndex={0} aria-label={`Projection of ${labelOf(looked)}: ${words}. Arrow keys go from point to point.`} onKeyDown={keys} onPointerLeave={() => setOver(null)}>
          <path className="chart-grid" d={`M0 ${HEIGHT}V0M0 ${HEIGHT}H${WIDTH}`} />
          {found.points.map(([px, py], at) => (
            <circle key={found.ids[at]} className={`dot-mark${isWanted(at) ? " wanted" : ""}${at === over ? " over" : ""}`} data-row={found.ids[at]} cx={x(px)} cy={y(py)} r={at === over ? 6 : isWanted(at) ? 5 : 3.5} onPointerEnter={() => setOver(at)} onDoubleClick={() => onRow(found.ids[at] as number)} />
          ))}
          {found.points.map(([px, py], at) => (few || (isWanted(at) && wanted.length > 1)) && at !== over && (
            <text key={found.ids[at]} className="point-name" x={x(px) + (x(px) > WIDTH * 0.85 ? -6 : 6)} y={y(py) - 5} textAnchor={x(px) > WIDTH * 0.85 ? "end" : "start"}>
              {found.labels?.[at] ?? found.ids[at]}
            </text>
          ))}
        </svg>
        {over !== null && found.points[over] && (
          <span className="point-told" style={{ left: `${(x(found.points[over][0]) / WIDTH) * 100}%`, top: `${(y(found.points[over][1]) / HEIGHT) * 100}%` }}>
            {nameOf(over)}
          </span>
        )}
      </div>
      <p className="heat-words">{words}</p>
    </div>
  );
}
