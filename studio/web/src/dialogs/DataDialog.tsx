// Data from a file: picked, or dropped on the canvas. Columns are chosen from a preview, and come in batches, or whole.

import { useEffect, useState } from "react";
import { api } from "../api";
import { complain, gesture } from "../line";
import type { Place } from "../logic/arrange";
import { closeDialog as close, DialogForm, toggled, wordsOf } from "../parts/DialogForm";
import { Modal } from "../parts/Modal";
import type { DataFile, Preview, Source } from "../protocol";
import { openDialog, say, store } from "../store";
import { openFile, select } from "../studio";
import { fitIfHidden, placeForNew } from "../view";

const sizeText = (size: number): string => (size < 1024 ? `${size} bytes` : size < 1 << 20 ? `${Math.round(size / 1024)} kB` : `${(size / (1 << 20)).toFixed(1)} MB`);

export function DataDialog({ path, at }: { path: string | null; at: Place | null }) {
  return (
    <Modal title={path ? `Data from ${path}` : "Add data"} onClose={close} wide>
      {path ? <Columns path={path} at={at} /> : <Picker at={at} />}
    </Modal>
  );
}

function Picker({ at }: { at: Place | null }) {
  const [files, setFiles] = useState<DataFile[] | null>(null);
  useEffect(() => {
    const { document } = store.get();
    if (document) void api.data(document).then((found) => setFiles(found.files), complain);
  }, []);
  return (
    <section className="files">
      {files?.length === 0 && <p className="dim">There are no data files in the folder of the page yet.</p>}
      <ul>
        {files?.map((file) => (
          <li key={file.path}>
            <button type="button" className="file" onClick={() => openDialog({ kind: "data", path: file.path, at })}>
              <span>{file.path}</span>
              <span className="dim">{sizeText(file.size)}</span>
            </button>
          </li>
        ))}
      </ul>
      <label className="line">
        From elsewhere
        <input type="file" aria-label="File from elsewhere" accept=".csv,.npy,.npz,.parquet,.arrow,.feather" onChange={(event) => event.target.files?.[0] && void openFile(event.target.files[0], at)} />
      </label>
      <p className="dim">A file can also be dropped on the canvas. It is copied into the folder of the page.</p>
    </section>
  );
}

function Columns({ path, at }: { path: string; at: Place | null }) {
  const [preview, setPreview] = useState<Preview | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [left, setLeft] = useState<Set<string>>(new Set());
  const [ragged, setRagged] = useState<Set<string>>(new Set());
  const canBatch = store.get().operators.has("Batches");
  const [batches, setBatches] = useState(canBatch);
  const [size, setSize] = useState("32");
  const [shuffle, setShuffle] = useState(true);
  const [heldOut, setHeldOut] = useState("0.2");
  useEffect(() => {
    const { document } = store.get();
    if (!document) return;
    api.preview(document, path).then(
      (found) => {
        setPreview(found);
        setRagged(new Set(found.columns.filter((column) => column.ragged).map((column) => column.name)));
      },
      (error: unknown) => setProblem(wordsOf(error)),
    );
  }, [path]);
  const chosen = preview?.columns.map((column) => column.name).filter((name) => !left.has(name)) ?? [];
  const commit = async (): Promise<void> => {
    const place = at ?? placeForNew();
    if (batches) {
      if (!/^[1-9]\d*$/.test(size.trim())) return setProblem("The batch size is a whole number from 1.");
      const share = Number(heldOut);
      if (!(share >= 0 && share < 1)) return setProblem("The share that is held out is from 0 to below 1.");
      close();
      const attrs: Record<string, Source> = { path, columns: chosen, batch_size: Number(size), shuffle, seed: 1, ...(share > 0 ? { holdout: share } : {}) };
      const lists = chosen.filter((name) => ragged.has(name));
      const ok = await gesture("add", { op: "Batches", at: place, attrs: { ...attrs, ...(lists.length ? { ragged: lists } : {}) } });
      if (ok) added([String(ok["block"])]);
      return;
    }
    close();
    const single = preview?.columns.length === 1;
    const ids: string[] = [];
    for (const [number, name] of chosen.entries()) {
      const ok = await gesture("add", { op: "File", at: [place[0], place[1] + 220 * number], attrs: { path, ...(single ? {} : { part: name }) } });
      if (ok) ids.push(String(ok["block"]));
    }
    added(ids);
  };
  const added = (ids: string[]): void => {
    select(ids);
    setTimeout(fitIfHidden); // when they are drawn
    if (ids.length) say(`Added ${ids.join(", ")}: ${chosen.length} columns of ${path}.`);
  };
  return (
    <DialogForm yes="Add to the page" commit={commit} disabled={!chosen.length} problem={problem}>
      {!preview && !problem && <p className="dim">Looking …</p>}
      {preview && (
        <div className="preview" tabIndex={0} role="region" aria-label={`Preview of ${path}`}>
          <table>
            <thead>
              <tr>
                {preview.columns.map(({ name, kind }) => (
                  <th key={name} scope="col">
                    <label>
                      <input type="checkbox" aria-label={`Column ${name}`} checked={!left.has(name)} onChange={() => setLeft(toggled(left, name))} /> {name}
                    </label>
                    <span className="dim">{kind}</span>
                    {batches && /text|list/.test(kind) && (
                      <label className="dim">
                        <input type="checkbox" aria-label={`${name} is a list`} checked={ragged.has(name)} onChange={() => setRagged(toggled(ragged, name))} /> a list in each cell
                      </label>
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {Array.from({ length: Math.max(0, ...preview.columns.map((column) => column.sample.length)) }, (_, row) => (
                <tr key={row}>
                  {preview.columns.map(({ name, sample }) => (
                    <td key={name} className={left.has(name) ? "dim" : undefined}>
                      {sample[row] ?? ""}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {canBatch && (
        <fieldset>
          <legend>Format</legend>
          <label className="choice">
            <input type="radio" name="how" checked={batches} onChange={() => setBatches(true)} /> In batches: each step of a loop gets the next one
          </label>
          <label className="choice">
            <input type="radio" name="how" checked={!batches} onChange={() => setBatches(false)} /> Whole: each column is one array
          </label>
          {batches && (
            <>
              <label className="line">
                Batch size
                <input type="text" inputMode="numeric" aria-label="Batch size" value={size} onChange={(event) => setSize(event.target.value)} />
              </label>
              <label className="choice">
                <input type="checkbox" aria-label="Shuffle" checked={shuffle} onChange={() => setShuffle(!shuffle)} /> Shuffle in every epoch
              </label>
              <label className="line">
                Held out for evaluation
                <input type="text" inputMode="decimal" aria-label="Held out" value={heldOut} onChange={(event) => setHeldOut(event.target.value)} />
              </label>
            </>
          )}
        </fieldset>
      )}
    </DialogForm>
  );
}
