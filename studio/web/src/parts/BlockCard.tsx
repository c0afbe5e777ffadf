// A block as a card: head, pins with what is typed into them, attributes, results. It reads its own part of the store by its id, so that
// a change elsewhere draws nothing here.

import { memo } from "react";
import type { NodeProps } from "@xyflow/react";
import { cardHeight, cardWidth, DOT, HEAD, isReroute } from "../logic/card";
import { literalOf } from "../logic/literal";
import { lookOf } from "../logic/pins";
import { partsOf, sizeIn } from "../logic/title";
import { wiresAt } from "../logic/wires";
import type { Block, OperatorDoc, PinDoc, Result } from "../protocol";
import { openDialog, operatorOf, store, useStore } from "../store";
import { fold } from "../folds";
import { onGroup } from "../groups";
import { duplicate } from "../clipboard";
import { change, feed, removeBlocks, runTo, select } from "../studio";
import { AttributeField } from "./AttributeField";
import { Derived, GroupHead } from "./GroupCard";
import { Icon } from "./Icon";
import { LiteralField } from "./LiteralField";
import { Menu, type Item } from "./Menu";
import { FarPin, Pin } from "./Pin";
import { ResultView } from "./ResultView";

export const BlockCard = memo(function BlockCard({ id }: NodeProps) {
  const far = useStore((state) => state.far);
  const dot = useStore((state) => isReroute(state.page.blocks[id]));
  return far ? <FarCard id={id} /> : dot ? <Dot id={id} /> : <NearCard id={id} />;
});

/** A point that a wire leads over. */
function Dot({ id }: { id: string }) {
  const block = useStore((state) => state.page.blocks[id]);
  const operator = useStore((state) => (block ? state.operators.get(block.op) : undefined));
  const [input, output] = [operator?.inputs[0], operator?.outputs[0]];
  if (!block || !input || !output) return null;
  const signal = block.out[output.name];
  return (
    <div className="card dot" style={DOT} title={`${id}: ${signal?.text ?? ""}`}>
      <div className="card-row">
        <Pin block={id} pin={input.name} kind="input" dtype={signal?.dtype ?? null} about={signal?.text ?? ""} wired={input.name in block.inputs} missing={block.missing.includes(input.name)} />
        <Pin block={id} pin={output.name} kind="output" dtype={signal?.dtype ?? null} about={signal?.text ?? ""} wired={false} />
      </div>
    </div>
  );
}

/** Seen from afar: its name, its family, its pins, and whether it failed. As high as the near one without its results. */
function FarCard({ id }: { id: string }) {
  const block = useStore((state) => state.page.blocks[id]);
  const status = useStore((state) => state.results[id]?.status ?? "waiting");
  const { catalogue } = store.get();
  const operator = operatorOf(block);
  if (!block || !operator) return null;
  const tint = catalogue?.families.find((family) => family.name === operator.family);
  const colour = (dtype: string | null | undefined): string => lookOf(catalogue?.looks, dtype).colour;
  const lines = Math.max(operator.inputs.length, operator.outputs.length);
  return (
    <div className={`card far ${status}`} style={{ ["--tint" as string]: tint?.header, ["--frame" as string]: tint?.frame, width: cardWidth(operator), height: cardHeight(block, operator) }}>
      <FarTitle id={id} width={cardWidth(operator)} height={cardHeight(block, operator)} />
      <div className="card-pins">
        {Array.from({ length: lines }, (_, i) => (
          <div className="card-row" key={i}>
            {operator.inputs[i] && <FarPin block={id} pin={operator.inputs[i].name} kind="input" colour={colour(block.in[operator.inputs[i].name]?.[0]?.dtype)} />}
            {operator.outputs[i] && <FarPin block={id} pin={operator.outputs[i].name} kind="output" colour={colour(block.out[operator.outputs[i].name]?.dtype)} />}
          </div>
        ))}
      </div>
    </div>
  );
}

/** The name as large as it fits, for when nothing smaller can be read. Drawn over the card, shown from afar; it may break between its parts. */
const FarTitle = memo(function FarTitle({ id, width, height }: { id: string; width: number; height: number }) {
  return (
    <div className="far-title" aria-hidden="true" style={{ ["--fits" as string]: `${sizeIn(id, width, height)}px` }}>
      <span data-title={partsOf(id).join("\u200b")} />
    </div>
  );
});

function NearCard({ id }: { id: string }) {
  const block = useStore((state) => state.page.blocks[id]);
  const group = useStore((state) => (block?.op === "Group" ? state.page.groups.find((item) => item.name === id) : undefined));
  const operator = useStore((state) => operatorOf(block, state));
  const tint = useStore((state) => state.catalogue?.families.find((family) => family.name === operator?.family));
  const result = useStore((state) => state.results[id]);
  const current = useStore((state) => Boolean(state.progress?.running && state.progress.block === id));
  const error = useStore((state) => state.pinErrors[`${id}:`]);
  const folded = useStore((state) => state.folded.has(id));
  if (!block || !operator) return null;
  const status = result?.status ?? "waiting";
  const stale = Boolean(result?.stale && status === "done");
  return (
    <div className={`card${group ? " of-group" : ""} ${status}${stale ? " is-stale" : ""}${current ? " current" : ""}${folded ? " folded" : ""}`} style={{ ["--tint" as string]: tint?.header, ["--frame" as string]: tint?.frame, width: cardWidth(operator) }}>
      <div className="card-head" onDoubleClick={() => (group ? void onGroup("open", id) : openDialog({ kind: "rename", block: id }))}>
        {group && <GroupHead group={group} at={block.at} />}
        {!group && <div className="card-names">
          <div className="card-id" title={id}>
            {id}
          </div>
          {block.op !== id && <div className="card-op">{block.op}</div>}
        </div>}
        {stale && <span className="stale-mark">stale</span>}
        {current && <span className="current-mark">running</span>}
        {!group && (
          <button type="button" className="quiet tiny nodrag" tabIndex={-1} aria-label={`${folded ? "Expand" : "Collapse"} the card of ${id}`} aria-expanded={!folded} title={folded ? "Expand the card" : "Collapse the card"} onClick={() => fold([id], !folded)}>
            <Icon name={folded ? "right" : "down"} />
          </button>
        )}
        {!group && (
          <Menu label={`Actions of ${id}`} className="quiet tiny nodrag" items={() => actions(block, operator)}>
            <Icon name="more" />
          </Menu>
        )}
      </div>
      {error && <div className="pin-error of-block">{error}</div>}
      <Pins block={block} operator={operator} folded={folded} />
      {!folded && operator.attributes.map((attribute) => (
        <AttributeField key={attribute.name} block={block} attribute={attribute} />
      ))}
      {!folded && group && <Derived group={group} />}
      {!folded && operator.role === "placeholder" && <FeedField block={block} />}
      {!folded && result && <Outcome block={id} result={result} stale={stale} />}
      <FarTitle id={id} width={cardWidth(operator)} height={folded ? HEAD : cardHeight(block, operator)} />
    </div>
  );
}

function actions(block: Block, operator: OperatorDoc): Item[] {
  const { id } = block;
  const first = operator.outputs[0];
  return [
    { label: "Run to here", do: () => void runTo(id) },
    { label: "Add gradients", do: () => first && openDialog({ kind: "gradients", output: `${id}:${first.name}` }), disabled: !first },
    { label: "Rename", do: () => openDialog({ kind: "rename", block: id }), keys: "F2" },
    { label: "Duplicate", do: () => void duplicate([id]), keys: "Ctrl D" },
    { label: "Delete", do: () => void removeBlocks([id]), keys: "Del" },
    store.get().folded.has(id) ? { label: "Expand the card", do: () => fold([id], false) } : { label: "Collapse the card", do: () => fold([id], true) },
    {
      label: "Reference",
      do: () => {
        select([id]);
        store.set(({ panels }) => ({ panels: { ...panels, inspector: true } }));
      },
    },
  ];
}

function Pins({ block, operator, folded }: { block: Block; operator: OperatorDoc; folded: boolean }) {
  const lines = Math.max(operator.inputs.length, operator.outputs.length);
  return (
    <div className="card-pins">
      {Array.from({ length: lines }, (_, i) => {
        const input = operator.inputs[i];
        const output = operator.outputs[i];
        const out = output && block.out[output.name];
        return (
          <div className="card-row" key={i}>
            {input && <InputPin block={block} pin={input} folded={folded} />}
            {output && !folded && (
              <span className="pin-name out" aria-hidden="true">
                {output.name}
              </span>
            )}
            {output && <Pin block={block.id} pin={output.name} kind="output" dtype={out?.dtype ?? null} about={`${out?.text ?? ""}\n${output.doc}`} wired={false} />}
          </div>
        );
      })}
    </div>
  );
}

const NONE: number[] = [];

function InputPin({ block, pin, folded }: { block: Block; pin: PinDoc; folded: boolean }) {
  const given = block.inputs[pin.name];
  const wires = wiresAt(given, pin.many);
  const missing = block.missing.includes(pin.name);
  const late = useStore((state) => missing && (state.results[block.id]?.status ?? "waiting") !== "waiting"); // no reproach before it was run
  const signals = block.in[pin.name] ?? [];
  const lit = useStore((state) => state.lit[`in ${block.id}:${pin.name}`] ?? NONE);
  const about = signals.map((signal) => signal.text).join("; ");
  const failed = useStore((state) => {
    const error = state.results[block.id]?.error;
    return error?.pin === pin.name || state.page.problems.some((problem) => problem.block === block.id && problem.pin === pin.name && problem.code !== "missing-input");
  });
  return (
    <>
      <Pin
        block={block.id}
        pin={pin.name}
        kind="input"
        dtype={signals[0]?.dtype ?? null}
        about={`${wires.length ? `${about}, from ${wires.join(", ")}` : about || pin.shape}\n${pin.doc}`}
        wired={given !== undefined}
        missing={missing}
      />
      {!folded && <span className={`pin-name${late ? " missing" : ""}${failed ? " failed" : ""}${lit.length && wires.length ? " lit" : ""}`} aria-hidden="true">
        {pin.name}
      </span>}
      {!folded && !wires.length && (
        <LiteralField
          label={`${pin.name} of ${block.id}`}
          at={{ block: block.id, pin: pin.name }}
          literal={literalOf(given)}
          dtypes={pin.dtypes}
          about={about}
          placeholder={pin.many ? "wires" : "value"}
          lit={lit}
          onCommit={(source) => change(block.id, { [pin.name]: pin.many && source !== null && !Array.isArray(source) ? [source] : source })}
          onText={() => openDialog({ kind: "text", block: block.id, name: pin.name, attribute: false })}
        />
      )}
      {!folded && pin.many && wires.length > 1 && <span className="count">{wires.length} wires</span>}
    </>
  );
}

/** What a placeholder is fed with; kept by the server for this page, not in the page file. */
function FeedField({ block }: { block: Block }) {
  const fed = useStore((state) => state.fed[block.id]);
  const dtype = block.attrs["dtype"];
  return (
    <div className="card-row attribute" title="The value to feed when the page runs; not saved in the file.">
      <span className="attribute-name" aria-hidden="true">
        feed
      </span>
      <LiteralField
        label={`feed of ${block.id}`}
        at={{ block: block.id, pin: "feed" }}
        literal={literalOf(fed)}
        dtypes={typeof dtype === "string" ? [dtype] : []}
        about=""
        placeholder="value"
        onCommit={async (source) => {
          await feed(block.id, source);
          store.set(({ fed: before }) => ({ fed: { ...before, [block.id]: source } }));
        }}
        onText={() => undefined}
      />
    </div>
  );
}

function Outcome({ block, result, stale }: { block: string; result: Result; stale: boolean }) {
  const room = useStore((state) => state.rooms[block]);
  const style = room === undefined ? undefined : { ["--room" as string]: `${room}px` };
  if (result.status === "waiting") return null;
  if (result.status === "failed" && result.error) {
    const { pin, message } = result.error;
    return (
      <div className="outcome failed" style={style}>
        {pin && !message.startsWith(pin) && <strong>{pin}: </strong>}
        {message}
      </div>
    );
  }
  if (result.status === "skipped") return <div className="outcome skipped">{result.needs ? `needs ${result.needs}` : result.reason}</div>;
  const outputs = Object.entries(result.outputs);
  if (!outputs.length) return null;
  return (
    <div className={`outcome done${outputs.length > 1 ? " several" : ""}`} style={style}>
      {outputs.map(([pin, value]) => (
        <ResultView key={pin} block={block} pin={pin} value={value} stale={stale} />
      ))}
    </div>
  );
}
