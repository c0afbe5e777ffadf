// What is wrong on the page, and what failed when it ran; each line leads to its place.

import { useMemo } from "react";
import type { Problem } from "../protocol";
import { store, useStore } from "../store";
import { jumpTo } from "../view";
import { Icon } from "./Icon";

export function Problems() {
  const problems = useStore((state) => state.page.problems);
  const results = useStore((state) => state.results);
  const open = useStore((state) => state.panels.problems);
  const all = useMemo(() => {
    const failed = Object.entries(results).flatMap(([block, { error, status }]) => (status === "failed" && error ? [{ ...error, block: error.block ?? block }] : []));
    const known = new Set(failed.map((problem) => `${problem.block}:${problem.pin}`));
    return [...failed, ...problems.filter((problem) => !known.has(`${problem.block}:${problem.pin}`))];
  }, [problems, results]);
  return (
    <section className={`problems${all.length ? "" : " none"}`} role="region" aria-label="Problems">
      <button type="button" className="problems-head" aria-expanded={open && all.length > 0} disabled={!all.length} onClick={() => store.set(({ panels }) => ({ panels: { ...panels, problems: !panels.problems } }))}>
        {all.length > 0 && <Icon name={open ? "down" : "right"} />}
        {all.length === 0 ? "No problems" : all.length === 1 ? "1 problem" : `${all.length} problems`}
      </button>
      {open && all.length > 0 && (
        <ul tabIndex={0} aria-label="List of problems">
          {all.slice(0, 200).map((problem, at) => (
            <li key={at}>
              <ProblemLine problem={problem} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function ProblemLine({ problem }: { problem: Problem }) {
  const { block, pin, message } = problem;
  const place = block ? (pin ? `${block}:${pin}` : block) : "";
  return (
    <button type="button" className="problem" onClick={() => block && jumpTo(block, pin)}>
      <Icon name="warn" />
      <span>
        {place && !message.startsWith(place) && <strong>{place}: </strong>}
        {message}
      </span>
    </button>
  );
}
