// The reference of the block that is selected, or of an operator of the palette; above it the tour and the chart while they are of use.

import { align } from "../keys";
import { lookOf } from "../logic/pins";
import type { OperatorDoc, PinDoc } from "../protocol";
import { useStore } from "../store";
import { addBlock, duplicate, removeSelected } from "../studio";
import { placeForNew, reveal } from "../view";
import { Chart } from "./Chart";
import { Glyph } from "./Pin";
import { Tour } from "./Tour";

export function Inspector() {
  const block = useStore((state) => (state.selected ? state.page.blocks[state.selected] : undefined));
  const operator = useStore((state) => state.operators.get(block?.op ?? state.shownOperator ?? ""));
  const result = useStore((state) => (block ? state.results[block.id] : undefined));
  const several = useStore((state) => state.nodes.filter((node) => node.selected).length);
  return (
    <aside className="inspector" aria-label="Inspector">
      <div className="inspector-scroll" tabIndex={0}>
        <Tour />
        <Chart />
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
        {operator ? <Reference operator={operator} /> : <Nothing />}
      </div>
    </aside>
  );
}

const secondsText = (seconds: number): string => (seconds < 0.001 ? "under 1 ms" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

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
