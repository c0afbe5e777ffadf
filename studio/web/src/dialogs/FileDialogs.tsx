// Opening, saving under a name, the examples.

import { useEffect, useState } from "react";
import { api } from "../api";
import { closeDialog as close, DialogForm } from "../parts/DialogForm";
import { LESSONS } from "../lessons/lessons";
import { startLesson } from "../parts/LessonPanel";
import { Modal } from "../parts/Modal";
import type { Files } from "../protocol";
import { useStore } from "../store";
import { complain } from "../line";
import { save } from "../studio";
import { open } from "../tabs";

function useFiles(): [Files | null, () => void] {
  const [files, setFiles] = useState<Files | null>(null);
  const load = (): void => void api.files().then(setFiles, complain);
  useEffect(load, []);
  return [files, load];
}

const when = (seconds: number): string => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

async function choose(opening: Parameters<typeof open>[0]): Promise<void> {
  if (await open(opening)) close();
}

export function OpenDialog() {
  const [files, load] = useFiles();
  return (
    <Modal title="Open" onClose={close}>
      {!files && <p className="dim">Looking …</p>}
      {files && files.drafts.length > 0 && (
        <section className="files">
          <h3>Not saved</h3>
          <ul>
            {files.drafts.map((draft) => (
              <li key={draft.id} className="with-side">
                <button type="button" className="file" onClick={() => void choose({ draft: draft.id })}>
                  <img src={api.draftPicture(draft.id, draft.modified)} alt="" width="96" height="54" loading="lazy" />
                  <span className="draft-name">
                    <span>{draft.path ?? draft.name}</span>
                    <span className="dim">{draft.about}</span>
                  </span>
                  <span className="dim">{when(draft.modified)}</span>
                </button>
                <button type="button" aria-label={`Discard ${draft.path ?? draft.name}`} onClick={() => void api.discard(draft.id).then(load, complain)}>
                  Discard
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
      {files && (
        <section className="files">
          <h3>Pages in {files.folder}</h3>
          {files.pages.length === 0 && <p className="dim">There are none yet.</p>}
          <ul>
            {files.pages.map((page) => (
              <li key={page.path}>
                <button type="button" className="file" onClick={() => void choose({ open: page.path })}>
                  <span>{page.path}</span>
                  <span className="dim">{when(page.modified)}</span>
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
      {files && <ExampleList files={files} />}
      <p className="dim">A page file, or a picture or GraphDef of a page, can also be dropped on the window.</p>
    </Modal>
  );
}

function ExampleList({ files }: { files: Files }) {
  if (!files.examples.length) return null;
  return (
    <section className="files">
      <h3>Examples</h3>
      <ul>
        {files.examples.map((example) => (
          <li key={example.name}>
            <button type="button" className="file" onClick={() => void choose({ example: example.name })}>
              <span>{example.title}</span>
              <span className="dim">{example.blocks} blocks</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function ExamplesDialog() {
  const [files] = useFiles();
  return (
    <Modal title="Examples" onClose={close} wide>
      <h3>Lessons</h3>
      <ul className="gallery">
        {LESSONS.map((lesson) => (
          <li key={lesson.id}>
            <button
              type="button"
              onClick={() => {
                close();
                void startLesson(lesson);
              }}
            >
              <strong>{lesson.title}</strong>
              <span>{lesson.about}</span>
              <span className="dim">{lesson.steps.length} steps</span>
            </button>
          </li>
        ))}
      </ul>
      <h3>Pages</h3>
      {!files && <p className="dim">Looking …</p>}
      <ul className="gallery">
        {files?.examples.map((example) => (
          <li key={example.name}>
            <button type="button" onClick={() => void choose({ example: example.name })}>
              <strong>{example.title}</strong>
              <span>{example.summary}</span>
              <span className="dim">{example.blocks} blocks</span>
            </button>
          </li>
        ))}
      </ul>
      {files && !files.examples.length && <p className="dim">There are none.</p>}
    </Modal>
  );
}

export function SaveAsDialog() {
  const { name, path } = useStore((state) => state.page);
  const [typed, setTyped] = useState(path ?? `${name.trim().replace(/[^\w.-]+/g, "_") || "page"}.page.json`);
  const commit = (): void => {
    const wanted = typed.trim();
    if (!wanted) return;
    close();
    void save(`${wanted.replace(/(\.page|\.json)+$/, "")}.page.json`); // whoever types the ending has it once
  };
  return (
    <Modal title="Save as" onClose={close}>
      <DialogForm yes="Save" commit={commit}>
        <label className="line">
          File
          <input type="text" aria-label="File" value={typed} data-first spellCheck={false} onChange={(event) => setTyped(event.target.value)} onFocus={(event) => event.target.setSelectionRange(0, event.target.value.replace(/\.page\.json$/, "").length)} />
        </label>
        <p className="dim">In the folder that the studio was started in, or one below it.</p>
      </DialogForm>
    </Modal>
  );
}
