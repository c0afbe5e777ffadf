// The canvas: React Flow with our cards and wires. Moving and selecting happen here at once; everything else is a command.

import { applyEdgeChanges, applyNodeChanges, Background, BackgroundVariant, MiniMap, ReactFlow, useReactFlow, type Edge, type EdgeChange, type Node, type NodeChange } from "@xyflow/react";
import { useCallback, useEffect, useRef, useState, type DragEvent, type MouseEvent as ReactMouseEvent } from "react";
import { GRID, type Place } from "../logic/arrange";
import { isWithin, noteNode, placedAnew, withFrames } from "../logic/flow";
import { inCell } from "../host";
import { openDialog, operatorOf, store, useStore } from "../store";
import { clearPinErrors } from "../line";
import { copyTo } from "../clipboard";
import { addBlock, changeNote, drop, endWire, openFile } from "../studio";
import { FARTHEST, keptView, placeAt, setView, wholeView } from "../view";
import { BlockCard } from "./BlockCard";
import { onConnect, onConnectEnd, onConnectStart, onReconnect, onReconnectStart } from "./connecting";
import { ConnectionLine } from "./ConnectionLine";
import { onEdgeMenu, onNodeMenu, onPaneMenu } from "./contextMenus";
import { MenuList } from "./Menu";
import { GroupFrame } from "./GroupCard";
import { NoteSlip } from "./NoteSlip";
import { WireEdge } from "./WireEdge";

const NODE_TYPES = { block: BlockCard, note: NoteSlip, frame: GroupFrame };
const EDGE_TYPES = { wire: WireEdge };
const MANY = 150; // from so many blocks on, only those in sight are drawn
const FAR = 0.42;
const NO_NODES: Node[] = [];
const NO_EDGES: Edge[] = [];
const AFAR = 0.55; // from here on titles are all that can be read
const TITLE = 12.5; // pixels of a title on the screen, where it fits
const isFar = (zoom: number, blocks: number): boolean => zoom < FAR && blocks > MANY;
export const DRAGGED = "application/x-rowgrad-operator";

/** A frame that is dragged takes its blocks along. */
function withMembers(change: NodeChange, nodes: Node[]): NodeChange[] {
  const frame = change.type === "position" && change.position ? nodes.find((node) => node.id === change.id && node.type === "frame") : undefined;
  if (!frame || change.type !== "position" || !change.position) return [change];
  const [x, y] = [change.position.x - frame.position.x, change.position.y - frame.position.y];
  return membersOf(frame, nodes).map((node) => ({ ...change, id: node.id, position: { x: node.position.x + x, y: node.position.y + y } }));
}

function membersOf(frame: Node, nodes: Node[]): Node[] {
  const { page } = store.get();
  return nodes.filter((node) => node.type === "block" && isWithin(page.blocks[node.id]?.group ?? "", String(frame.data["name"])));
}

function onNodesChange(changes: NodeChange[]): void {
  const { nodes, page } = store.get();
  const moved = page.groups.length ? changes.flatMap((change) => withMembers(change, nodes)) : changes;
  const placed = applyNodeChanges(moved.filter((change) => change.type !== "remove"), nodes);
  const changed = page.groups.length ? withFrames(placed, page) : placed;
  if (!changes.some((change) => change.type === "select")) {
    store.set({ nodes: changed });
    return;
  }
  const chosen = changed.filter((node) => node.selected && page.blocks[node.id]);
  store.set({ nodes: changed, selected: chosen[0]?.id ?? null, ...(chosen.length ? { shownOperator: null } : {}) });
}

/** What was dragged with Alt stays where it was; a copy stands where it was dropped. */
async function dropCopy(moved: Node[]): Promise<void> {
  const ids = moved.map((node) => node.id).filter((id) => store.get().page.blocks[id]);
  const corner: Place = [Math.min(...moved.map((node) => node.position.x)), Math.min(...moved.map((node) => node.position.y))];
  store.set(({ nodes, page }) => ({ nodes: placedAnew(nodes, page) }));
  if (ids.length) await copyTo(ids, corner);
}

const onEdgesChange = (changes: EdgeChange[]): void => store.set(({ edges }) => ({ edges: applyEdgeChanges(changes.filter((change) => change.type === "select"), edges) }));

let copies = false; // Alt was held when the drag began

const onDragStart = (event: { altKey: boolean }): void => {
  copies = event.altKey;
};

function onDragStop(_: unknown, __: unknown, moved: Node[]): void {
  const places: Record<string, Place> = {};
  if (copies) return void dropCopy(moved);
  const { nodes } = store.get();
  moved = moved.flatMap((node) => (node.type === "frame" ? membersOf(node, nodes) : [node]));
  for (const { id, position, data } of moved) {
    const [x, y] = data["at"] as Place;
    if (x !== position.x || y !== position.y) places[id] = [position.x, position.y];
  }
  if (Object.keys(places).length) void drop(places);
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
  else if (file) void openFile(file, [x, y]);
}

const minimapColour = (node: Node): string => {
  if (node.type === "frame") return "transparent";
  const { page, catalogue } = store.get();
  const family = operatorOf(page.blocks[node.id])?.family;
  return catalogue?.families.find((item) => item.name === family)?.frame ?? "#c9b458";
};

/** What has a size on the screen rather than on the page: popovers, and titles from afar. In steps, since every change is felt by all cards. */
function scaleTo(room: HTMLElement | null, zoom: number): void {
  const step = String(Math.max(FARTHEST, Number(zoom.toPrecision(2))));
  if (!room || room.style.getPropertyValue("--zoom") === step) return;
  room.style.setProperty("--zoom", step);
  room.style.setProperty("--far", `${TITLE / Number(step)}px`);
  room.classList.toggle("afar", zoom < AFAR);
}

export function Canvas() {
  const nodes = useStore((state) => state.nodes);
  const edges = useStore((state) => state.edges);
  const document = useStore((state) => state.document);
  const loaded = useStore((state) => state.page.revision >= 0);
  const empty = useStore((state) => state.page.revision >= 0 && state.nodes.length === 0);
  const wiring = useStore((state) => Boolean(state.wiring));
  const menu = useStore((state) => state.menu);
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
    const view = keptView(document ?? "") ?? wholeView() ?? { x: 60, y: 60, zoom: 1 };
    void flow.setViewport(view);
    scaleTo(room.current, view.zoom);
    store.set({ far: isFar(view.zoom, store.get().nodes.length) });
    setShown(document);
  }, [loaded, shown, document, flow]);

  const onMove = useCallback((_: unknown, { zoom }: { zoom: number }) => {
    const far = isFar(zoom, store.get().nodes.length);
    if (far !== store.get().far) store.set({ far });
    scaleTo(room.current, zoom);
  }, []);
  // Wires are led around cards when these rest; on pages of very many blocks nobody could follow them anyway.
  useEffect(() => {
    if (nodes.some((node) => node.dragging)) return;
    const boxes = many ? [] : nodes.filter((node) => node.type === "block" && node.measured?.height).map(({ id, position, measured }) => ({ id, ...position, width: measured?.width ?? 0, height: measured?.height ?? 0 }));
    const before = store.get().obstacles;
    if (boxes.length !== before.length || boxes.some((box, at) => JSON.stringify(box) !== JSON.stringify(before[at]))) store.set({ obstacles: boxes });
  }, [nodes, many]);
  return (
    <div className="canvas" data-wiring={wiring || undefined} ref={room} onDoubleClick={onDoubleClick} onDrop={onDrop} onDragOver={(event) => event.preventDefault()}>
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
        onConnect={onConnect}
        onConnectEnd={(event, state) => void onConnectEnd(event, state)}
        onReconnectStart={onReconnectStart}
        onReconnect={onReconnect}
        onPaneContextMenu={onPaneMenu}
        onEdgeContextMenu={onEdgeMenu}
        onNodeContextMenu={onNodeMenu}
        onSelectionContextMenu={(event, chosen) => chosen[0] && onNodeMenu(event, chosen[0])}
        onNodeDragStart={onDragStart}
        onSelectionDragStart={onDragStart}
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
      {menu && <MenuList label={menu.label} items={menu.items} anchor={menu.anchor} onClose={() => store.set({ menu: null })} />}
      {empty && (
        <div className="empty-hint">
          <p>{inCell ? "Double-click here to add a block." : "Drag a block from the palette, or double-click here to search."}</p>
          <p>
            <button type="button" onClick={() => openDialog({ kind: "add", adding: { at: null, wire: null } })}>
              Search operators <kbd>Ctrl K</kbd>
            </button>{" "}
            {!inCell && (
              <button type="button" onClick={() => openDialog({ kind: "examples" })}>
                Look at an example
              </button>
            )}
          </p>
        </div>
      )}
    </div>
  );
}
