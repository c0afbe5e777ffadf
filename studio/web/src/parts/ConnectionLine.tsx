// The wire that is being dragged.

import { useReactFlow, type ConnectionLineComponentProps } from "@xyflow/react";
import { lookOf } from "../logic/pins";
import { curve, endOf } from "../logic/wires";
import { useStore } from "../store";
import { REACH } from "./WireEdge";

export function ConnectionLine({ fromX, fromY, toX, toY }: ConnectionLineComponentProps) {
  const wiring = useStore((state) => state.wiring);
  const look = useStore((state) => {
    const { block, pin } = endOf(state.wiring?.from ?? ":");
    const held = state.page.blocks[block];
    return lookOf(state.catalogue?.looks, state.wiring?.kind === "output" ? held?.out[pin]?.dtype : held?.in[pin]?.[0]?.dtype);
  });
  // A wire that is held by its end still comes from where it began.
  const flow = useReactFlow();
  const held = wiring?.kind === "output" ? wiring.held : undefined;
  const node = held && flow.getInternalNode(held.source.block);
  const handle = node?.internals.handleBounds?.source?.find((item) => item.id === held?.source.pin);
  if (held && node && handle) {
    const { x, y } = node.internals.positionAbsolute;
    const { path } = curve(x + handle.x + handle.width / 2, y + handle.y + handle.height / 2, toX, toY, "");
    return <path className="wire-line drawing" d={path} style={{ ["--pin" as string]: look.colour }} />;
  }
  const forward = wiring?.kind !== "input";
  const { path } = forward ? curve(fromX - REACH, fromY, toX, toY, "") : curve(toX, toY, fromX + REACH, fromY, "");
  return <path className="wire-line drawing" d={path} style={{ ["--pin" as string]: look.colour }} />;
}
