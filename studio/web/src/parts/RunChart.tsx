// The lines of runs, in whatever room there is; the values at a step under the pointer.

import { useEffect, useMemo, useRef, useState } from "react";
import { heightOf, linesOf, scaleOf } from "../logic/chart";
import { colourOfRun } from "../logic/chartPicture";
import { brief } from "../logic/heat";
import { smoothed, type Recording } from "../logic/runs";

const LEFT = 56;
const BELOW = 24;
const DASHES = [undefined, "7 3", "2 3", "9 3 2 3"];

interface Props {
  runs: Recording[];
  colours: Map<number, number>; // by run, so that hiding one changes no other
  steps: number;
  log: boolean | null;
  smooth: number;
}

export function RunChart({ runs, colours, steps, log, smooth }: Props) {
  const room = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 600, height: 140 });
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    if (!room.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setSize({ width: Math.max(160, entry.contentRect.width), height: Math.max(60, entry.contentRect.height) }));
    watch.observe(room.current);
    return () => watch.disconnect();
  }, []);
  const outputs = useMemo(() => [...new Set(runs.flatMap((run) => Object.keys(run.values)))], [runs]);
  const lines = useMemo(
    () => runs.flatMap((run) => Object.entries(run.values).map(([output, raw]) => ({ run, output, raw, values: smoothed(raw, smooth), dash: DASHES[outputs.indexOf(output) % 4], colour: colourOfRun(colours.get(run.id) ?? 0) }))),
    [runs, outputs, smooth, colours],
  );
  const scale = useMemo(() => scaleOf(lines.flatMap((line) => line.raw.map((value) => value ?? NaN)), log), [lines, log]);
  const count = Math.max(2, steps, ...lines.map((line) => line.raw.length));
  const [width, height] = [size.width - LEFT - 10, size.height - BELOW - 8];
  const x = (step: number): number => (step / (count - 1)) * width;
  const y = (value: number): number => height - heightOf(value, scale) * height;
  const told = at === null ? [] : lines.flatMap(({ run, output, values, colour }) => (values[at] === null || values[at] === undefined ? [] : [{ key: `${run.id} ${output}`, text: `${run.name} ${output}: ${brief(values[at] as number)}`, value: values[at] as number, colour }]));
  return (
    <div className="run-chart" ref={room}>
      <svg
        width={size.width}
        height={size.height}
        aria-hidden="true"
        focusable="false"
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const step = Math.round(((event.clientX - box.left - LEFT) / width) * (count - 1));
          setAt(step >= 0 && step < count ? step : null);
        }}
        onPointerLeave={() => setAt(null)}
      >
        <g transform={`translate(${LEFT} 8)`}>
          {scale.ticks.map((tick) => (
            <g key={tick}>
              <path className="chart-grid" d={`M0 ${y(tick)}H${width}`} />
              <text className="chart-tick" x={-6} y={y(tick) + 3.5} textAnchor="end">
                {brief(tick)}
              </text>
            </g>
          ))}
          {runs.flatMap((run) => run.marks.map(({ step, text }) => (
            <g key={`${run.id} ${step} ${text}`} className="chart-mark">
              <path d={`M${x(step)} 0V${height}`} />
              <text className="chart-tick" x={x(step) + 4} y={10}>
                {text}
              </text>
            </g>
          )))}
          {smooth > 0 && lines.flatMap(({ run, output, raw, colour }) => linesOf(raw, scale, width, height, count).map((points, part) => <polyline key={`raw ${run.id} ${output} ${part}`} className="run-line raw" points={points} style={{ stroke: colour }} />))}
          {lines.flatMap(({ run, output, values, dash, colour }) => linesOf(values, scale, width, height, count).map((points, part) => <polyline key={`${run.id} ${output} ${part}`} className="run-line" data-run={run.name} points={points} strokeDasharray={dash} style={{ stroke: colour }} />))}
          {at !== null && <path className="chart-cursor" d={`M${x(at)} 0V${height}`} />}
          {at !== null && told.map(({ key, value, colour }) => <circle key={key} cx={x(at)} cy={y(value)} r={3} style={{ fill: colour }} />)}
          <text className="chart-tick" x={0} y={height + 16}>
            1
          </text>
          <text className="chart-tick" x={width} y={height + 16} textAnchor="end">
            step {count}
          </text>
        </g>
      </svg>
      {at !== null && told.length > 0 && (
        <div className="chart-told" style={x(at) > width / 2 ? { left: LEFT + 8 } : { right: 16 }}>
          <strong>step {at + 1}</strong>
          {told.slice(0, 12).map(({ key, text, colour }) => (
            <span key={key}>
              <span className="run-key" style={{ background: colour }} /> {text}
            </span>
          ))}
        </div>
      )}
    </div>
  );
}
