// The block that is selected: first what can be edited, then the reference; above them the tour, lessons and sliders while they are of use.

import { align } from "../keys";
import { stringify } from "../logic/exact";
import { literalOf } from "../logic/literal";
import { lookOf } from "../logic/pins";
import type { Block, Group, OperatorDoc, PinDoc } from "../protocol";
import { openDialog, operatorOf, useStore } from "../store";
import { duplicate } from "../clipboard";
import { addBlock, change, removeSelected } from "../studio";
import { placeForNew, reveal } from "../view";
import { AttributeField } from "./AttributeField";
import { groupActions } from "./GroupCard";
import { LessonPanel } from "./LessonPanel";
import { LiteralField } from "./LiteralField";
import { Glyph } from "./Pin";
import { NumberTools, Sliders } from "./Sliders";
import { Tour } from "./Tour";

export function Inspector() {
  const block = useStore((state) => (state.selected ? state.page.blocks[state.selected] : undefined));
  const operator = useStore((state) => (block ? operatorOf(block, state) : state.operators.get(state.shownOperator ?? "")));
  const group = useStore((state) => (block?.op === "Group" ? state.page.groups.find((item) => item.name === block.id) : undefined));
  const result = useStore((state) => (block ? state.results[block.id] : undefined));
  const several = useStore((state) => state.nodes.filter((node) => node.selected).length);
  return (
    <aside className="inspector" aria-label="Inspector">
      <div className="inspector-scroll" tabIndex={0}>
        <Tour />
        <LessonPanel />
        <Sliders />
        {several > 1 && <TogetherFields />}
        {several > 1 && (
          <div className="several" role="group" aria-label="Selection">
            <p>{several} selected</p>
            <div className="buttons">
              <button type="button" title="Alt L" onClick={() => align("left")}>
                Align left
              </button>
              <button type="button" title="Alt T" onClick={() => align("top")}>
                Align top
              </button>
              <button type="button" onClick={() => void duplicate()}>
                Duplicate all
              </button>
              <button type="button" onClick={() => void removeSelected()}>
                Delete all
              </button>
            </div>
          </div>
        )}
        {block && (
          <div className="inspector-block">
            {block.id !== block.op && <h2>{block.id}</h2>}
            {result && result.status !== "waiting" && (
              <p className="dim">
                {result.reason}
                {result.status === "done" && ` in ${secondsText(result.seconds)}`}
                {result.stale && ", stale"}
              </p>
            )}
          </div>
        )}
        {block && operator && !group && several < 2 && <EditBlock block={block} operator={operator} />}
        {block && several < 2 && <NumberTools block={block.id} />}
        {group ? <AboutGroup group={group} /> : operator ? <Reference operator={operator} /> : <Nothing />}
      </div>
    </aside>
  );
}

/** Attributes and literals that several blocks of one operator have in common: a change is one step for all of them. */
function TogetherFields() {
  const ids = useStore((state) => state.nodes.filter((node) => node.selected && state.page.blocks[node.id]).map((node) => node.id).join("\n"));
  const blocks = useStore((state) => state.page.blocks);
  const chosen = ids.split("\n").flatMap((id) => blocks[id] ?? []);
  const [first, ...others] = chosen;
  const operator = useStore((state) => state.operators.get(first?.op ?? ""));
  if (!first || !operator || others.some((block) => block.op !== first.op)) return null;
  const also = others.map((block) => block.id);
  const isShared = (of: (block: Block) => unknown): boolean => others.every((block) => stringify(of(block) ?? null) === stringify(of(first) ?? null));
  const shared: Block = { ...first, attrs: Object.fromEntries(Object.entries(first.attrs).filter(([name]) => isShared((block) => block.attrs[name]))) };
  const pins = operator.inputs.filter((pin) => !pin.many && chosen.every((block) => typeof block.inputs[pin.name] !== "string"));
  return (
    <div className="together" role="group" aria-label={`Edit ${chosen.length} blocks`}>
      <p>
        {chosen.length} × {operator.name}
      </p>
      {pins.map((pin) => (
        <div className="card-row attribute" key={pin.name} title={pin.doc}>
          <span className="attribute-name" aria-hidden="true">
            {pin.name}
          </span>
          <LiteralField
            label={`${pin.name} of ${chosen.length} blocks`}
            at={{ block: first.id, pin: pin.name }}
            literal={isShared((block) => block.inputs[pin.name]) ? literalOf(first.inputs[pin.name]) : null}
            dtypes={pin.dtypes}
            about=""
            placeholder={isShared((block) => block.inputs[pin.name]) ? "value" : "several values"}
            onCommit={(source) => change(first.id, { [pin.name]: source }, also)}
            onText={() => undefined}
          />
        </div>
      ))}
      {operator.attributes.map((attribute) => (
        <AttributeField key={attribute.name} block={shared} attribute={attribute} also={also} />
      ))}
    </div>
  );
}

/** The literals and attributes of the block that is selected: what one came for stands first. */
function EditBlock({ block, operator }: { block: Block; operator: OperatorDoc }) {
  const derived = useStore((state) => state.page.groups.some((group) => group.kind !== "" && (block.group === group.name || block.group.startsWith(`${group.name}/`))));
  const pins = operator.inputs.filter((pin) => !pin.many && typeof block.inputs[pin.name] !== "string");
  if (derived || (!pins.length && !operator.attributes.length)) return null;
  return (
    <div className="together" role="group" aria-label={`Edit ${block.id}`}>
      {pins.map((pin) => (
        <div className="card-row attribute" key={pin.name} title={pin.doc}>
          <span className="attribute-name" aria-hidden="true">
            {pin.name}
          </span>
          <LiteralField
            label={`Inspected ${pin.name}`}
            bare
            at={{ block: block.id, pin: pin.name }}
            literal={literalOf(block.inputs[pin.name])}
            dtypes={pin.dtypes}
            about={(block.in[pin.name] ?? []).map((signal) => signal.text).join("; ")}
            placeholder={pin.shape || "value"}
            onCommit={(source) => change(block.id, { [pin.name]: source })}
            onText={() => openDialog({ kind: "text", block: block.id, name: pin.name, attribute: false })}
          />
        </div>
      ))}
      {operator.attributes.map((attribute) => (
        <AttributeField key={attribute.name} block={block} attribute={attribute} inspected />
      ))}
    </div>
  );
}

const secondsText = (seconds: number): string => (seconds < 0.001 ? "under 1 ms" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

function AboutGroup({ group }: { group: Group }) {
  return (
    <article className="reference">
      <p>
        A group of {group.members} blocks{group.kind ? ` with the ${group.kind === "training" ? "gradients, slots and updates of a training step" : "gradients"}: ${group.about}` : ""}.
      </p>
      {group.kind && <p>It is derived from the page and follows every change. Its blocks cannot be edited; detach it, in its menu, to make them ordinary ones.</p>}
      <div className="buttons">
        {groupActions(group, group.at).map(({ label, do: act }) => (
          <button key={label} type="button" onClick={act}>
            {label}
          </button>
        ))}
      </div>
    </article>
  );
}

function Nothing() {
  return (
    <div className="dim">
      <p>Select a block to read what it does, or point at an operator of the palette.</p>
    </div>
  );
}

function Reference({ operator }: { operator: OperatorDoc }) {
  const family = useStore((state) => state.catalogue?.families.find((item) => item.name === operator.family));
  const insert = async (): Promise<void> => {
    const id = await addBlock(operator.name, placeForNew(), { example: true });
    if (id) setTimeout(() => reveal(id), 60);
  };
  const gradients = Object.entries(operator.gradient);
  return (
    <article className="reference">
      <header style={{ ["--tint" as string]: family?.header, ["--frame" as string]: family?.frame }}>
        <h3>{operator.name}</h3>
        <span>{family?.title}</span>
      </header>
      <p>{operator.summary}</p>
      {operator.formula && <pre className="formula">{operator.formula}</pre>}
      <button type="button" onClick={() => void insert()}>
        Insert this example
      </button>
      <PinList title="Inputs" pins={operator.inputs} />
      <PinList title="Outputs" pins={operator.outputs} />
      {operator.attributes.length > 0 && (
        <>
          <h4>Attributes</h4>
          <dl>
            {operator.attributes.map((attribute) => (
              <div key={attribute.name}>
                <dt>
                  {attribute.name} <span className="dim">{attribute.kind}{attribute.required ? "" : attribute.default === null ? ", optional" : `, else ${String(attribute.default)}`}</span>
                </dt>
                <dd>{attribute.doc}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
      {gradients.length > 0 && (
        <>
          <h4>Gradients</h4>
          <dl>
            {gradients.map(([pin, rules]) => (
              <div key={pin}>
                <dt>{pin}</dt>
                {rules.map((rule) => (
                  <dd key={rule}>
                    <code>{rule}</code>
                  </dd>
                ))}
              </div>
            ))}
          </dl>
        </>
      )}
      {operator.errors.length > 0 && (
        <>
          <h4>Errors</h4>
          <ul>
            {operator.errors.map((error) => (
              <li key={error}>{error}</li>
            ))}
          </ul>
        </>
      )}
      {operator.notes && (
        <>
          <h4>Notes</h4>
          {operator.notes.split(/\n\n+/).map((paragraph) => (
            <p key={paragraph}>{paragraph}</p>
          ))}
        </>
      )}
      {operator.cost && (
        <>
          <h4>Cost</h4>
          <p>{operator.cost}</p>
        </>
      )}
    </article>
  );
}

function PinList({ title, pins }: { title: string; pins: PinDoc[] }) {
  const looks = useStore((state) => state.catalogue?.looks);
  if (!pins.length) return null;
  return (
    <>
      <h4>{title}</h4>
      <dl>
        {pins.map((pin) => (
          <div key={pin.name}>
            <dt>
              <Glyph look={lookOf(looks, pin.dtypes.length === 1 ? pin.dtypes[0] : (pin.dtypes.find((dtype) => dtype === "float32") ?? pin.dtypes[0]))} />
              {pin.name}{" "}
              <span className="dim" title={pin.dtypes.join(", ")}>
                {pin.dtypes.length > 4 ? `${pin.dtype} (${pin.dtypes.length} types)` : pin.dtypes.join(", ")} {pin.shape}
                {pin.many && ", several"}
              </span>
            </dt>
            <dd>{pin.doc}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
