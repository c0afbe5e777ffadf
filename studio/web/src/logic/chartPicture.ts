// The chart of runs as a PNG: drawn anew on a canvas, on white, so that it can be put into a report.

import { heightOf, scaleOf } from "./chart";
import { brief } from "./heat";
import { smoothed, type Recording } from "./runs";

const WIDTH = 960;
const HEIGHT = 480;
const LEFT = 74;
const TOP = 24;
const SCALE = 2; // for screens with many pixels

export const COLOURS = ["#1f5fa8", "#c2410c", "#1f7a48", "#7a4fb0", "#a3195b", "#0f766e", "#8a5a00", "#475569"] as const;
export const colourOfRun = (at: number): string => COLOURS[at % COLOURS.length] as string;

export async function drawnChart(runs: Recording[], log: boolean | null, smooth: number): Promise<Blob> {
  const lines = runs.flatMap((run, at) => Object.entries(run.values).map(([output, values]) => ({ name: `${run.name}: ${output}`, colour: colourOfRun(at), values: smoothed(values, smooth) })));
  const scale = scaleOf(lines.flatMap((line) => line.values.map((value) => value ?? NaN)), log);
  const steps = Math.max(2, ...lines.map((line) => line.values.length));
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH * SCALE;
  canvas.height = (HEIGHT + 40 + lines.length * 20) * SCALE;
  const paper = canvas.getContext("2d");
  if (!paper) throw new Error("This browser cannot draw pictures.");
  paper.scale(SCALE, SCALE);
  paper.fillStyle = "#ffffff";
  paper.fillRect(0, 0, WIDTH, canvas.height / SCALE);
  paper.font = "13px sans-serif";
  const [width, height] = [WIDTH - LEFT - 24, HEIGHT - TOP - 40];
  paper.strokeStyle = "#d5dbe1";
  paper.fillStyle = "#525e69";
  for (const tick of scale.ticks) {
    const y = TOP + height * (1 - heightOf(tick, scale));
    paper.beginPath();
    paper.moveTo(LEFT, y);
    paper.lineTo(LEFT + width, y);
    paper.stroke();
    paper.textAlign = "right";
    paper.fillText(brief(tick), LEFT - 8, y + 4);
  }
  paper.textAlign = "left";
  paper.fillText("1", LEFT, TOP + height + 20);
  paper.textAlign = "right";
  paper.fillText(`step ${steps}`, LEFT + width, TOP + height + 20);
  lines.forEach(({ name, colour, values }, at) => {
    paper.strokeStyle = colour;
    paper.lineWidth = 2;
    paper.beginPath();
    let down = false;
    values.forEach((value, step) => {
      if (value === null || (scale.log && value <= 0)) {
        down = false;
        return;
      }
      const [x, y] = [LEFT + (step / (steps - 1)) * width, TOP + height * (1 - heightOf(value, scale))];
      if (down) paper.lineTo(x, y);
      else paper.moveTo(x, y);
      down = true;
    });
    paper.stroke();
    const y = HEIGHT + 8 + at * 20;
    paper.fillStyle = colour;
    paper.fillRect(LEFT, y - 5, 22, 3);
    paper.fillStyle = "#1f2933";
    paper.textAlign = "left";
    paper.fillText(name, LEFT + 32, y);
  });
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("The picture could not be made.")))));
}
