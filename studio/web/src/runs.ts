// What users do with runs: each function is one gesture. Loops, pauses, sweeps, evaluation, and sliders that run the page while they move.

import { api } from "./api";
import { complain, gesture, send } from "./line";
import { drawnChart } from "./logic/chartPicture";
import { brief } from "./logic/heat";
import { csvOf, type Recording } from "./logic/runs";
import { openDialog, say, store } from "./store";
import { running } from "./studio";
import type { Source } from "./protocol";

export async function loop(steps: number, record: string[], name = ""): Promise<boolean> {
  store.set(({ dock }) => ({ evaluated: {}, dock: { ...dock, open: true } }));
  const ok = await running("loop", { steps, record, ...(name.trim() ? { name: name.trim() } : {}) }, `Loop of ${steps} steps`);
  return Boolean(ok) && !ok?.["paused"];
}

export async function pause(): Promise<void> {
  if (await gesture("pause")) say("Paused: change what you like, then resume.");
}

export const pausedRun = (runs: Recording[]): Recording | undefined => runs.findLast((run) => run.paused);

export async function resume(run: Recording): Promise<void> {
  await running("resume", { run: run.id, steps: run.asked }, run.name);
}

export async function sweep(target: string, values: Source[], steps: number, record: string[]): Promise<void> {
  store.set(({ dock }) => ({ dock: { ...dock, open: true } }));
  const ok = await gesture("sweep", { target, values, steps, record });
  if (ok) say(`Swept ${target} over ${(ok["runs"] as number[]).length} values.`);
}

export async function renameRun(run: number, name: string): Promise<void> {
  await send("rename_run", { run, name });
  say(`The run is now called ${name.trim()}.`);
}

export async function removeRuns(runs: number[]): Promise<void> {
  if (await gesture("remove_runs", { runs })) say(runs.length === 1 ? "Removed the run." : `Removed ${runs.length} runs.`);
}

/** The means of outputs over the examples of a split, beside the chart. */
export async function evaluate(outputs: string[], split = "test"): Promise<void> {
  const ok = await gesture("evaluate", { outputs, split });
  if (!ok) return;
  const evaluated = ok["values"] as Record<string, number | null>;
  const where = splitText(split);
  store.set(({ dock }) => ({ evaluated: Object.fromEntries(Object.entries(evaluated).map(([name, value]) => [`${name} on the ${where}`, value])), dock: { ...dock, open: true } }));
  say(`On the ${where}: ${Object.entries(evaluated).map(([name, value]) => `${name} ${value === null ? "is not a number" : brief(value)}`).join(", ")}.`);
}

export const splitText = (split: string): string => (split === "test" ? "examples held out" : split === "train" ? "examples for training" : `examples of ${split}`);

export const shownRuns = ({ runs, hiddenRuns } = store.get()): Recording[] => runs.filter((run) => !hiddenRuns.has(run.id));

export function exportCsv(): void {
  api.keep(new Blob([csvOf(shownRuns())], { type: "text/csv" }), `${store.get().page.name || "page"}-runs.csv`);
  say("Exported the runs as CSV.");
}

export async function exportPng(): Promise<void> {
  const { dock, page } = store.get();
  try {
    api.keep(await drawnChart(shownRuns(), dock.log, dock.smooth), `${page.name || "page"}-runs.png`);
    say("Exported the chart as PNG.");
  } catch (error) {
    complain(error);
  }
}

// ——— Sliders

export interface Slider {
  block: string; // or a group
  name: string; // a pin, an attribute, or a setting of a group
  low: number;
  high: number;
  whole: boolean;
}

/** A slider for a number: a range around it that is likely to be of use. */
export function addSlider(block: string, name: string, value: number, whole: boolean): void {
  const { sliders } = store.get();
  if (sliders.some((one) => one.block === block && one.name === name)) return;
  const [low, high] = value === 0 ? [-1, 1] : value > 0 ? [0, value * 2] : [value * 2, 0];
  store.set({ sliders: [...sliders, { block, name, low, high: whole ? Math.max(high, low + 1) : high, whole }] });
  say(`Added a slider for ${name} of ${block}.`);
}

export const changeSlider = (slider: Slider, change: Partial<Slider>): void => store.set(({ sliders }) => ({ sliders: sliders.map((one) => (one.block === slider.block && one.name === slider.name ? { ...one, ...change } : one)) }));
export const removeSlider = (slider: Slider): void => store.set(({ sliders }) => ({ sliders: sliders.filter((one) => one.block !== slider.block || one.name !== slider.name) }));

let slides = 0;
let wanted: { slider: Slider; value: Source } | null = null;
let moving = false;

/** A new drag: its changes are one step of undo. */
export const beginSlide = (): void => {
  slides++;
};

/** Sets the literal and runs what is stale; while that takes, only the last place of the slider counts. */
export async function slideTo(slider: Slider, value: number, typed: (value: number) => Source): Promise<void> {
  wanted = { slider, value: typed(value) };
  if (moving) return;
  moving = true;
  try {
    while (wanted) {
      const { slider: { block, name }, value: next } = wanted;
      wanted = null;
      const isGroup = store.get().page.groups.some((group) => group.name === block);
      if (isGroup) await send("set_group", { group: block, set: { [name]: next }, slide: Math.max(1, slides) });
      else await send("change", { block, set: { [name]: next }, slide: Math.max(1, slides) });
      if (!store.get().progress?.running) await send("run");
    }
  } catch (error) {
    wanted = null;
    complain(error);
  } finally {
    moving = false;
  }
}

export const openSweep = (): void => openDialog({ kind: "sweep" });
