// A wire: coloured by its type, with type and shape written on it where there is room.

import type { EdgeProps } from "@xyflow/react";
import { memo, useMemo } from "react";
import { lookOf } from "../logic/pins";
import { curve, nameOf, type Wire } from "../logic/wires";
import { useStore } from "../store";

export const REACH = 11; // pins are boxes of 22; wires end in their middle

export const WireEdge = memo(function WireEdge({ sourceX, sourceY, targetX, targetY, selected, data }: EdgeProps) {
  const wire = data as unknown as Wire;
  const look = useStore((state) => lookOf(state.catalogue?.looks, wire.dtype));
  const quiet = useStore((state) => state.page.groups.some((group) => group.kind !== "" && group.name === wire.target.block) && state.selected !== wire.target.block);
  const held = useStore((state) => state.wiring?.held?.id === wire.id);
  const obstacles = useStore((state) => state.obstacles);
  const { path, label } = useMemo(
    () => curve(sourceX - REACH, sourceY, targetX + REACH, targetY, wire.label, wire.siblings > 1, { boxes: obstacles, ends: [wire.source.block, wire.target.block] }),
    [sourceX, sourceY, targetX, targetY, wire, obstacles],
  );
  return (
    <g className={`wire${selected ? " selected" : ""}${held ? " held" : ""}${quiet ? " quiet" : ""}`} style={{ ["--pin" as string]: look.colour }} data-wire={`${nameOf(wire.source)} to ${nameOf(wire.target)}`}>
      <title>{`${wire.label}, from ${nameOf(wire.source)} to ${nameOf(wire.target)}`}</title>
      <path className="wire-reach react-flow__edge-interaction" d={path} />
      <path className="wire-line" d={path} />
      {label && wire.isLast && (
        <>
          <rect className="wire-paper" x={label.x} y={label.y - (label.lines.length > 1 ? 10.5 : 7)} width={label.width} height={label.lines.length > 1 ? 21 : 14} rx={3} />
          {label.lines.map((line, at) => (
            <text key={line} className="wire-label" x={label.x + 4} y={label.y + 3.4 + (at - (label.lines.length - 1) / 2) * 9.6}>
              {line}
            </text>
          ))}
        </>
      )}
    </g>
  );
});
