// What is wrong on the page, and what failed when it ran; each line leads to its place.

import { useMemo } from "react";
import type { Problem } from "../protocol";
import { store, useStore, type State } from "../store";
import { jumpTo } from "../view";
import { Icon } from "./Icon";

/** What needs doing: what failed or cannot hold; inputs that nobody has come to yet; results with elements that are not finite. */
function gathered({ page, results, refused }: Pick<State, "page" | "results" | "refused">): { wrong: Problem[]; open: Problem[]; odd: Problem[] } {
  const failed = Object.entries(results).flatMap(([block, { error, status }]) => (status === "failed" && error ? [{ ...error, block: error.block ?? block }] : []));
  const typed = Object.entries(refused).map(([label, problem]) => ({ ...problem, message: `${problem.message} The input was not applied.`, field: label }));
  const known = new Set([...failed, ...typed].map((problem) => `${problem.block}:${problem.pin}`));
  const others = page.problems.filter((problem) => !known.has(`${problem.block}:${problem.pin}`));
  const isOpen = ({ code, block }: Problem): boolean => code === "missing-input" && (results[block ?? ""]?.status ?? "waiting") === "waiting";
  const odd = Object.entries(results).flatMap(([block, { status, outputs }]) =>
    status === "done" ? Object.entries(outputs).flatMap(([pin, value]) => (value.odd ? [{ block, pin, code: "not-finite", message: `${block}:${pin} has ${value.odd} among ${value.shape.reduce((product, size) => product * size, 1)} elements.` }] : [])) : [],
  );
  return { wrong: [...typed, ...failed, ...others.filter((problem) => !isOpen(problem))], open: others.filter(isOpen), odd };
}

const counted = (count: number, one: string, many: string): string[] => (count ? [`${count} ${count === 1 ? one : many}`] : []);

export function Problems() {
  const page = useStore((state) => state.page);
  const results = useStore((state) => state.results);
  const refused = useStore((state) => state.refused);
  const open = useStore((state) => state.panels.problems);
  const found = useMemo(() => gathered({ page, results, refused }), [page, results, refused]);
  const all = [...found.wrong, ...found.odd, ...found.open];
  const words = [found.wrong.length ? counted(found.wrong.length, "problem", "problems")[0] : "No problems", ...counted(found.odd.length, "result with NaN or infinities", "results with NaN or infinities"), ...counted(found.open.length, "input to fill", "inputs to fill")];
  return (
    <section className={`problems${found.wrong.length + found.odd.length ? "" : " none"}`} role="region" aria-label="Problems">
      <button type="button" className="problems-head" aria-expanded={open && all.length > 0} disabled={!all.length} onClick={() => store.set(({ panels }) => ({ panels: { ...panels, problems: !panels.problems } }))}>
        {all.length > 0 && <Icon name={open ? "down" : "right"} />}
        {words.join(" · ")}
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

function ProblemLine({ problem }: { problem: Problem & { field?: string } }) {
  const { block, pin, message, field, code } = problem;
  const place = block ? (pin ? `${block}:${pin}` : block) : "";
  return (
    <button type="button" className={`problem ${code}`} onClick={() => block && jumpTo(block, pin, code === "not-finite" ? "output" : "input", field)}>
      <Icon name="warn" />
      <span>
        {place && !message.startsWith(place) && <strong>{place}: </strong>}
        {message}
      </span>
    </button>
  );
}
