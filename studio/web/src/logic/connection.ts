// The line to the server: numbered commands, each answered once; a line that breaks is built anew, and what was not answered is sent
// again with its number, so that the server does it once. No DOM here: sockets and timers are handed in.

import type { Answer, Problem, ServerEvent } from "../protocol";
import { parse, stringify } from "./exact";

export interface Line {
  send(text: string): void;
  close(): void;
  onopen: (() => void) | null;
  onmessage: ((message: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
}

export interface Surroundings {
  connect(): Line;
  event(event: ServerEvent): void;
  state(state: ConnectionState): void;
  /** The server does not know this page, or refuses: trying again is of no use before something is done about it. */
  lost(code: number): void;
  later(milliseconds: number, what: () => void): () => void; // gives what cancels it
}

export type ConnectionState = "connecting" | "online" | "offline";

/** What the server said no to. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

interface Pending {
  n: number;
  text: string;
  done(ok: Record<string, unknown>): void;
  failed(error: Error): void;
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 4000;
const LOST = [4404, 4403, 1008];

/** How long to wait before the attempt after `failures` ones. */
export function backoff(failures: number): number {
  return Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.max(0, failures - 1));
}

export class Connection {
  private line: Line | null = null;
  private open = false;
  private next: number;
  private failures = 0;
  private closed = false;
  private cancelRetry: (() => void) | null = null;
  private readonly pending = new Map<number, Pending>();

  constructor(private readonly around: Surroundings, first = 1) {
    this.next = first;
    this.start();
  }

  /** How many commands were not answered yet. */
  get waiting(): number {
    return this.pending.size;
  }

  /** Sends a command; what it gives, or `Refused`. While the line is down it waits. */
  send(what: string, given: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const n = this.next++;
    const text = stringify({ n, do: what, ...given });
    return new Promise((done, failed) => {
      this.pending.set(n, { n, text, done, failed });
      if (this.open) this.line?.send(text);
    });
  }

  /** Tries again now, rather than when the wait is over. */
  retry(): void {
    if (this.closed || this.open) return;
    this.cancelRetry?.();
    this.start();
  }

  /** Hangs up for good; commands that wait are dropped. */
  close(): void {
    this.closed = true;
    this.cancelRetry?.();
    this.line?.close();
    for (const { failed } of this.pending.values()) failed(new Error("The page was closed."));
    this.pending.clear();
  }

  private start(): void {
    if (this.line) this.line.onclose = this.line.onmessage = this.line.onopen = null;
    this.around.state(this.failures ? "offline" : "connecting");
    const line = this.around.connect();
    this.line = line;
    line.onopen = () => {
      this.open = true;
      this.failures = 0;
      this.around.state("online");
      for (const { text } of this.pending.values()) line.send(text);
    };
    line.onmessage = ({ data }) => this.hear(String(data));
    line.onclose = ({ code }) => {
      this.open = false;
      if (this.closed) return;
      this.failures++;
      this.around.state("offline");
      if (LOST.includes(code)) this.around.lost(code);
      if (!this.closed) this.cancelRetry = this.around.later(backoff(this.failures), () => this.start());
    };
  }

  private hear(text: string): void {
    // Only pages hold what users have written; results can be large and are left to the browser's own parser.
    const message = (/"event":\s*"page"/.test(text.slice(0, 200)) ? parse(text) : JSON.parse(text)) as unknown as ServerEvent | Answer;
    if ("event" in message) {
      this.around.event(message);
      return;
    }
    const waiting = this.pending.get(message.n);
    if (!waiting) return;
    this.pending.delete(message.n);
    if (message.error) waiting.failed(new Refused(message.error));
    else waiting.done(message.ok ?? {});
  }
}
