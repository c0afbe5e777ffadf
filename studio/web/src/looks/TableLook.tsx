// All values of a result, as a table that scrolls: only the rows in sight are fetched and drawn, however many there are.

import { useCallback, useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";
import type { Rows } from "../protocol";
import { say } from "../store";
import { labelOf, look, sizesOf, type Looked } from "./look";

const ROW = 22;
const PAGE = 100; // rows that are fetched together
const ACROSS = 64; // columns that are shown together
const HIGHEST = 15_000_000; // pixels; browsers draw nothing beyond about twice that
const MOST_PAGES = 60;

interface Sort {
  column: number;
  descending: boolean;
}

export function TableLook({ looked, onElement }: { looked: Looked; onElement: (row: number, column: number) => void }) {
  const { rows, columns } = sizesOf(looked.value);
  const label = labelOf(looked);
  const room = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [sort, setSort] = useState<Sort | null>(null);
  const [first, setFirst] = useState(0);
  const [found, setFound] = useState<number | null>(null); // a row that was looked for
  const [problem, setProblem] = useState<string | null>(null);
  const [typed, setTyped] = useState("");
  const [pages, setPages] = useState<Map<number, Rows>>(new Map());
  const asked = useRef(new Set<number>());
  const edition = useRef(0);

  // Another order, other columns or another result: everything is fetched anew.
  useEffect(() => {
    edition.current++;
    asked.current.clear();
    setPages(new Map());
  }, [looked.value, looked.against, looked.block, looked.pin, sort, first]);
  useLayoutEffect(() => {
    if (!room.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setHeight(entry.contentRect.height));
    watch.observe(room.current);
    return () => watch.disconnect();
  }, []);

  const whole = Math.min(rows * ROW, HIGHEST);
  const scale = Math.max(1, (rows * ROW - height) / Math.max(1, whole - height)); // rows are closer together than pixels where there are very many
  const offset = top * scale;
  const start = Math.max(0, Math.floor(offset / ROW) - 4);
  const end = Math.min(rows, Math.ceil((offset + height) / ROW) + 4);
  const query = { column: first, columns: ACROSS, sort: sort?.column ?? null, descending: Boolean(sort?.descending) };
  useEffect(() => {
    const now = edition.current;
    for (let page = Math.floor(start / PAGE); page * PAGE < end; page++) {
      if (asked.current.has(page)) continue;
      asked.current.add(page);
      look<Rows>(looked, "window", { ...query, start: page * PAGE, count: PAGE }).then(
        (answer) => {
          if (now !== edition.current) return;
          setProblem(null);
          setPages((before) => {
            const next = new Map(before).set(page, answer);
            for (const old of next.keys()) if (next.size > MOST_PAGES && old !== page && next.delete(old)) asked.current.delete(old);
            return next;
          });
        },
        (error: unknown) => now === edition.current && setProblem(error instanceof Error ? error.message : String(error)),
      );
    }
  });

  const scrollTo = useCallback((position: number) => room.current?.scrollTo({ top: Math.max(0, (position * ROW - height / 2 + ROW) / scale) }), [height, scale]);
  const search = async (): Promise<void> => {
    const text = typed.trim();
    if (!text) return;
    const isRow = /^#?\d+$/.test(text) && (text.startsWith("#") || Number(text) < rows) && !text.includes(".");
    try {
      const answer = await look<{ row: number | null; position: number | null }>(looked, "find", { sort: query.sort, descending: query.descending, ...(isRow ? { row: Number(text.replace("#", "")) } : { value: text.replace(/^=/, ""), after: found ?? 0 }) });
      setFound(answer.row);
      setProblem(answer.row === null ? `No row holds ${text}.` : null);
      say(answer.row === null ? `No row holds ${text}.` : `Row ${answer.row}${sort ? `, at position ${Number(answer.position) + 1} in this order` : ""}.`);
      if (answer.position !== null) scrollTo(answer.position);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  const by = (column: number): void => {
    setSort(sort?.column !== column ? { column, descending: false } : sort.descending ? null : { column, descending: true });
    room.current?.scrollTo({ top: 0 });
  };
  const keys = (event: KeyboardEvent): void => {
    const step = { Home: -Infinity, End: Infinity, PageDown: height / ROW - 1, PageUp: 1 - height / ROW, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined || event.target !== room.current) return;
    event.preventDefault();
    room.current?.scrollTo({ top: step === Infinity ? whole : step === -Infinity ? 0 : room.current.scrollTop + (step * ROW) / scale });
  };
  const shown = Math.min(ACROSS, columns - first);
  const lines = Array.from({ length: Math.max(0, end - start) }, (_, at) => {
    const position = start + at;
    const page = pages.get(Math.floor(position / PAGE));
    return { position, id: page?.ids[position % PAGE], cells: page?.cells[position % PAGE] };
  });
  return (
    <div className="table-look">
      <form
        className="look-tools"
        onSubmit={(event) => {
          event.preventDefault();
          void search();
        }}
      >
        <label>
          Search <input type="search" aria-label="Search rows" placeholder="row number, or =value" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <button type="submit">Find</button>
        <span className="dim">
          {rows.toLocaleString("en")} × {columns.toLocaleString("en")}
          {sort ? `, by column ${sort.column}${sort.descending ? ", largest first" : ""}` : ""}
        </span>
        {columns > ACROSS && (
          <label>
            Columns from <input type="number" aria-label="First column" min={0} max={columns - 1} value={first} onChange={(event) => setFirst(Math.max(0, Math.min(columns - 1, Math.floor(Number(event.target.value) || 0))))} />
          </label>
        )}
        {problem && <span className="field-error">{problem}</span>}
      </form>
      <div className="rows-room" ref={room} tabIndex={0} role="table" aria-label={`All rows of ${label}`} aria-rowcount={rows + 1} aria-colcount={columns + 1} onScroll={(event) => setTop(event.currentTarget.scrollTop)} onKeyDown={keys}>
        <div className="rows-head" role="row" aria-rowindex={1}>
          <span className="rows-id" role="columnheader">
            row
          </span>
          {Array.from({ length: shown }, (_, at) => first + at).map((column) => (
            <span key={column} className="rows-cell" role="columnheader" aria-sort={sort?.column === column ? (sort.descending ? "descending" : "ascending") : "none"}>
              <button type="button" aria-label={`Sort by column ${column}`} onClick={() => by(column)}>
                {column}
                {sort?.column === column ? (sort.descending ? " ▾" : " ▴") : ""}
              </button>
            </span>
          ))}
        </div>
        <div className="rows-all" role="rowgroup" style={{ height: whole }}>
          <div className="rows-shown" role="presentation" style={{ transform: `translateY(${start * ROW - offset + top}px)` }}>
            {lines.map(({ position, id, cells }) => (
              <div key={position} className={`rows-row${id !== undefined && id === found ? " lit" : ""}`} role="row" aria-rowindex={position + 2}>
                <span className="rows-id" role="rowheader">
                  {id ?? "…"}
                </span>
                {Array.from({ length: shown }, (_, at) => (
                  <span key={at} className="rows-cell" role="cell" title={cells?.[at]} onClick={() => id !== undefined && onElement(id, first + at)}>
                    {cells?.[at] ?? ""}
                  </span>
                ))}
              </div>
            ))}
          </div>
        </div>
      </div>
    </div>
  );
}
