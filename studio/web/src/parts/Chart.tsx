// The values that a loop records, while it runs and after.

import { useMemo } from "react";
import { heightOf, linesOf, scaleOf } from "../logic/chart";
import { brief } from "../logic/heat";
import { useStore } from "../store";

const WIDTH = 264;
const HEIGHT = 130;
const LEFT = 46;

export function Chart() {
  const recorded = useStore((state) => state.recorded);
  const steps = useStore((state) => (state.progress?.running ? state.progress.steps : 0));
  const evaluated = useStore((state) => state.evaluated);
  const names = Object.keys(recorded);
  const scale = useMemo(() => scaleOf(Object.values(recorded).flat().map((value) => value ?? NaN)), [recorded]);
  if (!names.length) return null;
  const count = Math.max(steps, ...Object.values(recorded).map((values) => values.length));
  const words = names.map((name) => {
    const values = (recorded[name] ?? []).filter((value) => value !== null);
    const [first, last] = [values[0], values.at(-1)];
    return `${name}: ${first === undefined ? "no numbers" : `${brief(first)} in step 1, ${brief(last as number)} in step ${recorded[name]?.length}`}`;
  });
  return (
    <figure className="chart" aria-label="Recorded values">
      <svg viewBox={`0 0 ${LEFT + WIDTH + 8} ${HEIGHT + 30}`} aria-hidden="true" focusable="false">
        <g transform={`translate(${LEFT} 8)`}>
          {scale.ticks.map((tick) => {
            const y = HEIGHT - heightOf(tick, scale) * HEIGHT;
            return (
              <g key={tick}>
                <path className="chart-grid" d={`M0 ${y}H${WIDTH}`} />
                <text className="chart-tick" x={-6} y={y + 3.5} textAnchor="end">
                  {brief(tick)}
                </text>
              </g>
            );
          })}
          {names.map((name, at) => linesOf(recorded[name] ?? [], scale, WIDTH, HEIGHT, count).map((points, part) => <polyline key={`${name} ${part}`} className={`chart-line line-${at % 4}`} points={points} />))}
          <text className="chart-tick" x={0} y={HEIGHT + 16}>
            1
          </text>
          <text className="chart-tick" x={WIDTH} y={HEIGHT + 16} textAnchor="end">
            step {count}
          </text>
        </g>
      </svg>
      <figcaption>
        <ul>
          {words.map((text, at) => (
            <li key={text.split(":")[0]}>
              <svg className="chart-key" viewBox="0 0 18 4" width="18" height="4" aria-hidden="true">
                <path className={`chart-line line-${at % 4}`} d="M0 2H18" />
              </svg>
              {text}
            </li>
          ))}
        </ul>
        {Object.entries(evaluated).map(([name, value]) => (
          <p key={name} className="evaluated">
            {name} on the examples held out: {value === null ? "not a number" : brief(value)}
          </p>
        ))}
        {scale.log && <span className="dim">logarithmic scale</span>}
      </figcaption>
    </figure>
  );
}
