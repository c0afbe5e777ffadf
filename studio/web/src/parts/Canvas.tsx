// The canvas: React Flow with our cards and wires. Moving and selecting happen here at once; everything else is a command.

import { applyEdgeChanges, applyNodeChanges, Background, BackgroundVariant, MiniMap, ReactFlow, useReactFlow, type Edge, type EdgeChange, type FinalConnectionState, type Node, type NodeChange } from "@xyflow/react";
import { useCallback, useEffect, useRef, useState, type DragEvent, type MouseEvent as ReactMouseEvent } from "react";
import { CARD, GRID, type Place } from "../logic/arrange";
import { noteNode } from "../logic/flow";
import { endOf } from "../logic/wires";
import { openDialog, say, store, useStore } from "../store";
import { clearPinErrors } from "../line";
import { addBlock, changeNote, connect, drop, endWire, openFile, startWire } from "../studio";
import { FARTHEST, placeAt, setView, wholeView } from "../view";
import { BlockCard } from "./BlockCard";
import { ConnectionLine } from "./ConnectionLine";
import { NoteSlip } from "./NoteSlip";
import { WireEdge } from "./WireEdge";

const NODE_TYPES = { block: BlockCard, note: NoteSlip };
const EDGE_TYPES = { wire: WireEdge };
const MANY = 150; // from so many blocks on, only those in sight are drawn
const FAR = 0.42;
const NO_NODES: Node[] = [];
const NO_EDGES: Edge[] = [];
const isFar = (zoom: number, blocks: number): boolean => zoom < FAR && blocks > MANY;
export const DRAGGED = "application/x-rowgrad-operator";

function onNodesChange(changes: NodeChange[]): void {
  const { nodes, page } = store.get();
  const changed = applyNodeChanges(changes.filter((change) => change.type !== "remove"), nodes);
  if (!changes.some((change) => change.type === "select")) {
    store.set({ nodes: changed });
    return;
  }
  const chosen = changed.filter((node) => node.selected && page.blocks[node.id]);
  store.set({ nodes: changed, selected: chosen[0]?.id ?? null, ...(chosen.length ? { shownOperator: null } : {}) });
}

const onEdgesChange = (changes: EdgeChange[]): void => store.set(({ edges }) => ({ edges: applyEdgeChanges(changes.filter((change) => change.type === "select"), edges) }));

function onDragStop(_: unknown, __: unknown, moved: Node[]): void {
  const places: Record<string, Place> = {};
  for (const { id, position, data } of moved) {
    const [x, y] = data["at"] as Place;
    if (x !== position.x || y !== position.y) places[id] = [position.x, position.y];
  }
  if (Object.keys(places).length) void drop(places);
}

let begun: Promise<{ op: string; pin: string }[]> = Promise.resolve([]);

function onConnectStart(_: unknown, { nodeId, handleId, handleType }: { nodeId: string | null; handleId: string | null; handleType: "source" | "target" | null }): void {
  begun = startWire(`${nodeId}:${handleId}`, handleType === "source" ? "output" : "input", "mouse");
}

/** A wire was let go: on a pin React Flow has connected it; on a card the first pin that fits takes it; on empty space a new block can. */
async function onConnectEnd(event: MouseEvent | TouchEvent, state: FinalConnectionState): Promise<void> {
  const wiring = store.get().wiring;
  const point = "changedTouches" in event ? event.changedTouches[0] : event;
  if (state.toHandle || !wiring || !point) return endWire();
  const under = document.elementFromPoint(point.clientX, point.clientY);
  const card = under?.closest<HTMLElement>(".react-flow__node")?.dataset["id"];
  const operators = await begun;
  const fits = [...(store.get().wiring?.fits ?? [])];
  endWire();
  if (card) {
    if (card === endOf(wiring.from).block) return;
    const missing = store.get().page.blocks[card]?.missing ?? [];
    const here = fits.filter((name) => endOf(name).block === card).sort((left, right) => Number(missing.includes(endOf(right).pin)) - Number(missing.includes(endOf(left).pin)));
    if (!here[0]) say(`No pin of ${card} takes ${wiring.from}.`, true);
    else await (wiring.kind === "output" ? connect(wiring.from, here[0]) : connect(here[0], wiring.from));
  } else if (under?.closest(".react-flow__pane")) {
    const [x, y] = placeAt(point.clientX, point.clientY);
    const at: Place = wiring.kind === "output" ? [x, y - 50] : [x - CARD, y - 50];
    openDialog({ kind: "add", adding: { at, wire: { from: wiring.from, kind: wiring.kind, operators } } });
  }
}

export async function addNote(at: Place): Promise<void> {
  const id = await changeNote(null, "Note", at);
  if (id) store.set({ editingNote: noteNode(id) });
}

function onDoubleClick(event: ReactMouseEvent): void {
  if (!(event.target as Element).classList.contains("react-flow__pane")) return;
  const at = placeAt(event.clientX, event.clientY);
  if (event.shiftKey) void addNote(at);
  else openDialog({ kind: "add", adding: { at, wire: null } });
}

function onDrop(event: DragEvent): void {
  event.preventDefault();
  event.stopPropagation();
  const op = event.dataTransfer.getData(DRAGGED);
  const file = event.dataTransfer.files[0];
  const [x, y] = placeAt(event.clientX, event.clientY);
  if (op) void addBlock(op, [Math.round((x - 60) / GRID) * GRID, Math.round((y - 18) / GRID) * GRID]);
  else if (file) void openFile(file);
}

const minimapColour = (node: Node): string => {
  const { page, operators, catalogue } = store.get();
  const family = operators.get(page.blocks[node.id]?.op ?? "")?.family;
  return catalogue?.families.find((item) => item.name === family)?.frame ?? "#c9b458";
};

export function Canvas() {
  const nodes = useStore((state) => state.nodes);
  const edges = useStore((state) => state.edges);
  const document = useStore((state) => state.document);
  const loaded = useStore((state) => state.page.revision >= 0);
  const empty = useStore((state) => state.page.revision >= 0 && state.nodes.length === 0);
  const wiring = useStore((state) => Boolean(state.wiring));
  const flow = useReactFlow();
  const room = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<string | null>(null);
  const many = nodes.length > MANY;

  useEffect(() => {
    setView(flow, room.current);
    return () => setView(null, null);
  }, [flow]);
  // Once for each page that is opened, before its blocks are drawn; not when blocks are added to an empty one.
  useEffect(() => {
    if (!loaded || shown === document) return;
    const view = wholeView() ?? { x: 60, y: 60, zoom: 1 };
    void flow.setViewport(view);
    store.set({ far: isFar(view.zoom, store.get().nodes.length) });
    setShown(document);
  }, [loaded, shown, document, flow]);

  const onMove = useCallback((_: unknown, { zoom }: { zoom: number }) => {
    const far = isFar(zoom, store.get().nodes.length);
    if (far !== store.get().far) store.set({ far });
  }, []);
  return (
    <div className={`canvas${wiring ? " wiring" : ""}`} ref={room} onDoubleClick={onDoubleClick} onDrop={onDrop} onDragOver={(event) => event.preventDefault()}>
      <ReactFlow
        aria-label="Canvas"
        nodes={shown === document ? nodes : NO_NODES}
        edges={shown === document ? edges : NO_EDGES}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        onNodesChange={onNodesChange}
        onEdgesChange={onEdgesChange}
        onNodeDragStop={onDragStop}
        onSelectionDragStop={(event, moved) => onDragStop(event, null, moved)}
        onConnectStart={onConnectStart}
        onConnect={({ source, sourceHandle, target, targetHandle }) => void connect(`${source}:${sourceHandle}`, `${target}:${targetHandle}`)}
        onConnectEnd={(event, state) => void onConnectEnd(event, state)}
        onPaneClick={() => {
          endWire();
          clearPinErrors();
        }}
        onMove={onMove}
        connectionLineComponent={ConnectionLine}
        onlyRenderVisibleElements={many}
        deleteKeyCode={null}
        disableKeyboardA11y
        edgesFocusable={false}
        connectOnClick={false}
        connectionDragThreshold={4}
        nodeDragThreshold={3}
        zoomOnDoubleClick={false}
        autoPanSpeed={8}
        snapToGrid
        snapGrid={[GRID, GRID]}
        minZoom={FARTHEST}
        maxZoom={2.5}
        proOptions={{ hideAttribution: true }}
      >
        <Background variant={BackgroundVariant.Dots} gap={24} size={1.6} color="var(--dots)" />
        {!empty && <MiniMap pannable zoomable nodeColor={minimapColour} nodeStrokeWidth={0} nodeBorderRadius={12} ariaLabel="Overview of the page" />}
      </ReactFlow>
      {empty && (
        <div className="empty-hint">
          <p>Drag a block from the palette, or double-click here to search.</p>
          <p>
            <button type="button" onClick={() => openDialog({ kind: "add", adding: { at: null, wire: null } })}>
              Search operators <kbd>Ctrl K</kbd>
            </button>{" "}
            <button type="button" onClick={() => openDialog({ kind: "examples" })}>
              Look at an example
            </button>
          </p>
        </div>
      )}
    </div>
  );
}
