// What is seen of the canvas: fitting, jumping to a block, the place for a new one.

import { getViewportForBounds, type ReactFlowInstance, type Viewport } from "@xyflow/react";
import { around, CARD, freePlace, type Box, type Place } from "./logic/arrange";
import { cardHeight, RESULT } from "./logic/card";
import { operatorOf, store } from "./store";
import { select } from "./studio";

let flow: ReactFlowInstance | null = null;
let room: HTMLElement | null = null;

export function setView(instance: ReactFlowInstance | null, element: HTMLElement | null): void {
  flow = instance;
  room = element;
}

const views = new Map<string, Viewport>();

/** Remembers where one was on the page that is left. */
export function keepView(): void {
  const { document, page } = store.get();
  if (flow && document && page.order.length) views.set(document, flow.getViewport());
}

export const keptView = (document: string): Viewport | undefined => views.get(document);

const motion = (): number => (matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 250);

export const FARTHEST = 0.05;

/** What is taken on the page, with room for results that are still to come. */
function boxes(): Box[] {
  const { nodes, page, results } = store.get();
  return nodes.map((node) => {
    const { id, position, measured } = node;
    const frame = node.type === "frame" ? node : null;
    const block = page.blocks[id];
    const shown = Object.keys(results[id]?.outputs ?? {}).length > 0;
    const height = frame ? (frame.height ?? 60) : block ? cardHeight(block, operatorOf(block)) + (Object.keys(block.out).length ? RESULT : 0) : 60;
    return { ...position, width: measured?.width ?? CARD, height: shown ? Math.max(measured?.height ?? 0, height) : height };
  });
}

const PADDING = 0.06;

/** Where to look from to see all of the page, with nothing under the overview; null where there is nothing. */
export function wholeView(): Viewport | null {
  const box = room?.getBoundingClientRect();
  const taken = boxes();
  if (!box || !taken.length) return null;
  const view = (width: number, height: number): Viewport => getViewportForBounds(around(taken), width, height, FARTHEST, 1, PADDING);
  const whole = view(box.width, box.height);
  const map = room?.querySelector(".react-flow__minimap")?.getBoundingClientRect();
  const [left, top] = map ? [map.left - box.left - 8, map.top - box.top - 8] : [box.width - 174, box.height - 124]; // it may not be drawn yet
  const isUnder = ({ x, y, zoom }: Viewport): boolean => taken.some((one) => (one.x + one.width) * zoom + x > left && (one.y + one.height) * zoom + y > top);
  if (!isUnder(whole)) return whole;
  if (left < box.width / 2) return whole; // a small screen is better used as a whole
  // Left of the overview, or above it: whichever shows the page larger.
  const [beside, above] = [view(left, box.height), view(box.width, top)];
  return beside.zoom > above.zoom ? beside : above;
}

export function fit(): void {
  const view = wholeView();
  if (view) void flow?.setViewport(view, { duration: motion() });
}

/** Fits the page if a part of it is out of sight. */
export function fitIfHidden(): void {
  const box = room?.getBoundingClientRect();
  const view = flow?.getViewport();
  if (!box || !view) return;
  const { x, y, width, height } = around(boxes());
  const [left, top] = [x * view.zoom + view.x, y * view.zoom + view.y];
  if (left < 0 || top < 0 || left + width * view.zoom > box.width || top + height * view.zoom > box.height) fit();
}

export const zoomBy = (factor: number): void => void flow?.zoomTo(flow.getZoom() * factor, { duration: motion() });

/** A point of the window on the page. */
export function placeAt(x: number, y: number): Place {
  const point = flow?.screenToFlowPosition({ x, y }) ?? { x: 0, y: 0 };
  return [Math.round(point.x), Math.round(point.y)];
}

function middle(): Place {
  const box = room?.getBoundingClientRect();
  return box ? placeAt(box.left + box.width / 2, box.top + box.height / 2) : [0, 0];
}

/** Where a block that is added by key or click stands: in the middle of what is seen, covering nothing. */
export function placeForNew(): Place {
  const [x, y] = middle();
  return freePlace([x - CARD / 2, y - 100], { width: CARD, height: 150 + RESULT }, boxes());
}

/** Where a block stands that is added at the end of a wire: there, or beside what it would cover. */
export const placeNear = (at: Place): Place => freePlace(at, { width: CARD, height: 150 }, boxes());

/** Moves a block into sight, if it is not. */
export function reveal(id: string, readable = 0.3, margin = 24): void {
  const node = flow?.getInternalNode(id);
  const box = room?.getBoundingClientRect();
  if (!flow || !node || !box) return;
  const { x, y, zoom } = flow.getViewport();
  const left = node.internals.positionAbsolute.x * zoom + x;
  const top = node.internals.positionAbsolute.y * zoom + y;
  const width = (node.measured.width ?? CARD) * zoom;
  const height = (node.measured.height ?? 150) * zoom;
  const inside = left >= margin && top >= margin && left + width <= box.width - margin && top + Math.min(height, 120) <= box.height - margin;
  if (inside && zoom > readable) return;
  if (zoom > readable && width < box.width - 2 * margin && height < box.height - 2 * margin) {
    // Only as far as is needed: what one was working on stays in sight.
    const shift = (from: number, size: number, room: number): number => Math.max(margin - from, 0) - Math.max(from + size + margin - room, 0);
    void flow.setViewport({ x: x + shift(left, width, box.width), y: y + shift(top, height, box.height), zoom }, { duration: motion() });
    return;
  }
  const { x: nodeX, y: nodeY } = node.internals.positionAbsolute;
  void flow.setCenter(nodeX + (node.measured.width ?? CARD) / 2, nodeY + (node.measured.height ?? 150) / 2, { zoom: Math.max(zoom, 0.8), duration: motion() });
}

const pinElement = (kind: string, name: string): HTMLElement | null => document.querySelector(`[data-pin="${CSS.escape(`${kind} ${name}`)}"]`);

/** To a block or one of its pins, with the focus. */
export function jumpTo(block: string, pin?: string | null, kind: "input" | "output" = "input", field?: string): void {
  if (!store.get().page.blocks[block]) return;
  select([block]);
  reveal(block, 0.55);
  // The block may have to be drawn first. Who presses a key meanwhile keeps the focus where it is.
  let pressed = false;
  const note = (): void => void (pressed = true);
  addEventListener("keydown", note, { capture: true });
  setTimeout(() => {
    removeEventListener("keydown", note, { capture: true });
    if (pressed) return;
    const target = (field && document.querySelector<HTMLElement>(`.card input[aria-label="${CSS.escape(field)}"]`)) || (pin && pinElement(kind, `${block}:${pin}`)) || document.querySelector<HTMLElement>(`.react-flow__node[data-id="${CSS.escape(block)}"]`);
    target?.focus({ preventScroll: true });
  }, 60);
}

/** The next pin that fits the wire that is being drawn, after the one that has the focus. */
export function nextFitting(backwards: boolean): void {
  const { wiring, page } = store.get();
  if (!wiring?.fits?.size) return;
  const kind = wiring.kind === "output" ? "input" : "output";
  const order = new Map(page.order.map((id, at) => [id, at]));
  const pins = [...wiring.fits].sort((left, right) => (order.get(left.slice(0, left.lastIndexOf(":"))) ?? 0) - (order.get(right.slice(0, right.lastIndexOf(":"))) ?? 0));
  const at = pins.findIndex((name) => pinElement(kind, name) === document.activeElement);
  const next = pins.at(at < 0 ? (backwards ? -1 : 0) : (at + (backwards ? -1 : 1)) % pins.length) as string;
  const block = next.slice(0, next.lastIndexOf(":"));
  reveal(block);
  const focus = (): void => pinElement(kind, next)?.focus({ preventScroll: true });
  if (pinElement(kind, next)) focus();
  else setTimeout(focus, 80);
}
