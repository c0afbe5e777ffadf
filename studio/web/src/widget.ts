// The studio in a cell of a notebook, for anywidget: a frame with the same page as in a window, whose messages go to the kernel. The frame
// keeps keys and styles of the notebook and of the studio apart, and gives each cell a page of its own.

import app from "built:app.js";
import style from "built:app.css";
import type { Host } from "./host";
import type { Line } from "./logic/connection";

interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, heard: (...given: never[]) => void): void;
  off(event: string, heard: (...given: never[]) => void): void;
}

interface Told {
  view: string;
  do: "opened" | "text" | "closed" | "fetched" | "pong";
  text: string;
  code: number;
  n: number;
  status: number;
  headers: Record<string, string>;
}

const GONE = 4404; // as the server says of a page that it does not know
const PATIENCE = 3000; // milliseconds

/** One load of the page in one frame. */
class View {
  private readonly id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
  private readonly asked = new Map<number, (response: Response) => void>();
  private next = 1;
  private line: Line | null = null;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  readonly host: Host;

  constructor(private readonly model: Model) {
    model.on("msg:custom", this.hear);
    this.host = {
      document: String(model.get("document")),
      fetch: (path, { method = "GET", body = "" } = {}) =>
        new Promise((answered) => {
          const n = this.next++;
          this.asked.set(n, answered);
          this.say("fetch", { n, path, method, body });
        }),
      connect: () => this.connect(),
    };
  }

  close(): void {
    this.say("close");
    this.model.off("msg:custom", this.hear);
    clearTimeout(this.waiting);
  }

  private say(what: string, more: Record<string, unknown> = {}): void {
    this.waiting ??= setTimeout(this.wonder, PATIENCE);
    try {
      this.model.send({ view: this.id, do: what, ...more });
    } catch {
      // The line to the kernel is closed; nothing will be heard.
    }
  }

  private connect(): Line {
    const line: Line = { send: (text) => this.say("text", { text }), close: () => this.say("close"), onopen: null, onmessage: null, onclose: null };
    this.line = line;
    this.say("open");
    return line;
  }

  private readonly hear = (told: Told, buffers: DataView[]): void => {
    if (told.view !== this.id) return;
    clearTimeout(this.waiting);
    this.waiting = undefined;
    if (told.do === "opened") this.line?.onopen?.();
    else if (told.do === "text") this.line?.onmessage?.({ data: told.text });
    else if (told.do === "closed") this.line?.onclose?.({ code: told.code });
    else if (told.do === "fetched") {
      this.asked.get(told.n)?.(new Response(told.status === 204 ? null : (buffers[0] as DataView<ArrayBuffer>), { status: told.status, headers: told.headers }));
      this.asked.delete(told.n);
    }
  };

  /** A kernel that was restarted or has ended does not say so: where nothing is heard, it is asked, and then given up until it answers. */
  private readonly wonder = (): void => {
    this.say("ping");
    this.waiting = setTimeout(() => {
      this.waiting = undefined;
      this.line?.onclose?.({ code: GONE });
    }, PATIENCE);
  };
}

const NIGHT = /@media\s*\(prefers-color-scheme:\s*dark\)/g;

/** Day or night, as JupyterLab has it; elsewhere the system decides. */
function shade(inside: Document): void {
  const light = document.body.dataset["jpThemeLight"];
  const sheet = inside.querySelector("style") ?? inside.head.appendChild(inside.createElement("style"));
  sheet.textContent = light === undefined ? style : style.replace(NIGHT, light === "true" ? "@media not all" : "@media all");
  inside.documentElement.style.colorScheme = light === undefined ? "" : light === "true" ? "light" : "dark";
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const frame = document.createElement("iframe");
  frame.title = "rowgrad studio";
  frame.srcdoc = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>rowgrad studio</title></head><body><div id="studio"></div></body></html>';
  frame.style.cssText = "display: block; box-sizing: border-box; width: 100%; border: 1px solid #8884; border-radius: 4px; resize: vertical; overflow: auto";
  const size = (): void => void (frame.style.height = `${Number(model.get("height"))}px`);
  let view: View | null = null;
  // A notebook takes cells out of sight and puts them back: the frame is loaded again then, and the kernel has kept everything.
  frame.addEventListener("load", () => {
    const inside = frame.contentDocument;
    if (!inside || !frame.contentWindow) return;
    view?.close();
    view = new View(model);
    frame.contentWindow.rowgradHost = view.host;
    shade(inside);
    inside.body.append(Object.assign(inside.createElement("script"), { textContent: app }));
  });
  const themes = new MutationObserver(() => frame.contentDocument && shade(frame.contentDocument));
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  size();
  model.on("change:height", size);
  el.append(frame);
  return () => {
    themes.disconnect();
    model.off("change:height", size);
    view?.close();
    frame.remove();
  };
}

export default { render };
