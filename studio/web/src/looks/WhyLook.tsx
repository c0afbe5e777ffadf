// Why this number? The entries that made one element, with factors and sums; each leads further back, and what is made of it leads on.

import { useEffect, useState } from "react";
import { api } from "../api";
import { brief } from "../logic/heat";
import type { Element, Entry, Explained } from "../protocol";
import { say, store, useStore } from "../store";

const nameOf = ({ block, pin, index }: Element): string => `${block}:${pin}${index.length ? `[${index.join(", ")}]` : ""}`;
const shown = (value: unknown): string => (typeof value === "number" ? brief(value) : String(value));
const same = (left: Element, right: Element): boolean => nameOf(left) === nameOf(right);

export function WhyLook({ first }: { first: Element }) {
  const [way, setWay] = useState<Element[]>([first]);
  const [typed, setTyped] = useState<string | null>(null);
  const [state, setState] = useState<{ found: Explained | null; problem: string | null }>({ found: null, problem: null });
  const results = useStore((store) => store.results);
  const at = way.at(-1) as Element;
  const { block, pin } = at;
  const place = at.index.join(", ");
  useEffect(() => {
    let current = true;
    const { document } = store.get();
    if (!document) return;
    api.explain(document, block, pin, place ? place.split(", ").map(Number) : []).then(
      (found) => {
        if (!current) return;
        setState({ found, problem: null });
        store.set({ why: { block, pin, index: found.explanation.index } });
        say(`${found.explanation.formula}: ${found.explanation.numbers}`);
      },
      (error: unknown) => current && setState({ found: null, problem: error instanceof Error ? error.message : String(error) }),
    );
    return () => {
      current = false;
    };
  }, [block, pin, place, results]);
  const go = (element: Element): void => {
    setTyped(null);
    const known = way.findIndex((one) => same(one, element));
    setWay(known >= 0 ? way.slice(0, known + 1) : [...way, element]);
  };
  const told = state.found?.explanation;
  return (
    <div className="why">
      <nav aria-label="Path to this element">
        {way.map((element, step) => (
          <button key={nameOf(element)} type="button" disabled={step === way.length - 1} onClick={() => go(element)}>
            {nameOf(element)}
          </button>
        ))}
      </nav>
      <form
        className="look-tools"
        onSubmit={(event) => {
          event.preventDefault();
          const index = (typed ?? place).split(/[,\s]+/).filter(Boolean).map(Number);
          if (index.every((part) => Number.isInteger(part) && part >= 0)) setWay([{ ...at, index }]);
          else setState({ found: null, problem: "Type the index of an element: integers from 0, one for each axis, such as 0, 1." });
        }}
      >
        <label>
          Element of {block}:{pin} <input type="text" aria-label="Element" value={typed ?? place} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <button type="submit">Ask</button>
      </form>
      {state.problem && <p className="field-error">{state.problem}</p>}
      {told && (
        <section className="why-told" aria-label={`Why ${nameOf(told)}`}>
          <p className="why-value">
            <strong>{shown(told.value)}</strong> <span className="dim">{told.op}, {told.dtype}{told.computed_in && told.computed_in !== told.dtype ? `, summed in ${told.computed_in}` : ""}</span>
          </p>
          <pre className="formula" tabIndex={0} aria-label="Formula">{`${told.formula}\n${told.numbers}`}</pre>
          {told.reason && <p>{told.reason}</p>}
          {told.parts.length > 0 && (
            <div className="why-parts" tabIndex={0} role="region" aria-label="Entries">
              <table>
                <thead>
                  <tr>
                    <th scope="col">entry</th>
                    <th scope="col">value</th>
                    <th scope="col">times</th>
                    <th scope="col">product</th>
                    <th scope="col">sum so far</th>
                    <th scope="col">because</th>
                    <th scope="col">from</th>
                  </tr>
                </thead>
                <tbody>
                  {told.parts.map((part, row) => (
                    <tr key={row} className={part.is_chosen ? "lit" : undefined}>
                      <td>{part.name}</td>
                      <td>{shown(part.value)}</td>
                      <td>{part.factor_text || (part.derivative === undefined ? "" : `slope ${shown(part.derivative)}`)}</td>
                      <td>{part.product === undefined ? "" : shown(part.product)}</td>
                      <td>{part.total === undefined ? "" : shown(part.total)}</td>
                      <td>{part.because.map((entry) => `${entry.input}[${entry.index.join(", ")}] = ${shown(entry.value)}`).join(", ")}</td>
                      <td>
                        <Sources entries={[part, ...part.because]} onGo={go} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
              {told.left_out > 0 && <p className="dim">and {told.left_out} more</p>}
            </div>
          )}
          {state.found && state.found.uses.length > 0 && (
            <p className="why-uses">
              It goes into{" "}
              {state.found.uses.slice(0, 12).map((element) => (
                <button key={nameOf(element)} type="button" onClick={() => go(element)}>
                  {nameOf(element)}
                </button>
              ))}
              {state.found.uses.length > 12 && ` and ${state.found.uses.length - 12} more`}
            </p>
          )}
        </section>
      )}
    </div>
  );
}

/** What an entry and its ids come from; literals come from nowhere else. */
function Sources({ entries, onGo }: { entries: Entry[]; onGo: (element: Element) => void }) {
  const sources = entries.flatMap(({ source }) => (source ? [source] : []));
  if (!sources.length) return <span className="dim">typed here</span>;
  return (
    <>
      {sources.map((source) => (
        <button key={nameOf(source)} type="button" aria-label={`Why ${nameOf(source)}`} onClick={() => onGo(source)}>
          {nameOf(source)}
        </button>
      ))}
    </>
  );
}
