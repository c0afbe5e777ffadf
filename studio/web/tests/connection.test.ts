import assert from "node:assert/strict";
import { test } from "node:test";
import { backoff, Connection, Refused, type Line } from "../src/logic/connection";
import type { ServerEvent } from "../src/protocol";

class FakeLine implements Line {
  sent: { n: number; do: string }[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((message: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  closed = false;
  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }
  close(): void {
    this.closed = true;
  }
  answer(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
}

function world() {
  const lines: FakeLine[] = [];
  const events: ServerEvent[] = [];
  const states: string[] = [];
  const waits: { milliseconds: number; what: () => void; cancelled: boolean }[] = [];
  const lost: number[] = [];
  const connection = new Connection({
    connect: () => {
      const line = new FakeLine();
      lines.push(line);
      return line;
    },
    event: (event) => events.push(event),
    state: (state) => states.push(state),
    lost: (code) => lost.push(code),
    later: (milliseconds, what) => {
      const wait = { milliseconds, what, cancelled: false };
      waits.push(wait);
      return () => {
        wait.cancelled = true;
      };
    },
  });
  const line = (): FakeLine => lines.at(-1) as FakeLine;
  return { connection, lines, line, events, states, waits, lost };
}

test("commands are numbered, wait for the line, and are answered by number", async () => {
  const { connection, line } = world();
  const first = connection.send("undo");
  const second = connection.send("connect", { source: "a:x", target: "b:y" });
  assert.equal(line().sent.length, 0);
  line().onopen?.();
  assert.deepEqual(line().sent, [{ n: 1, do: "undo" }, { n: 2, do: "connect", source: "a:x", target: "b:y" }]);
  line().answer({ n: 2, ok: { fine: true } });
  line().answer({ n: 1, error: { message: "nothing to undo", block: null, pin: null, code: "empty" } });
  assert.deepEqual(await second, { fine: true });
  await assert.rejects(first, (error: unknown) => error instanceof Refused && error.problem.code === "empty");
  assert.equal(connection.waiting, 0);
});

test("after a break, what was not answered is sent again with its number", async () => {
  const { connection, lines, line, states, waits } = world();
  line().onopen?.();
  const done = connection.send("run");
  void connection.send("undo").catch(() => undefined);
  line().answer({ n: 2, ok: {} });
  line().onclose?.({ code: 1006 });
  assert.equal(waits[0]?.milliseconds, 250);
  void connection.send("redo");
  waits[0]?.what();
  assert.equal(lines.length, 2);
  line().onopen?.();
  assert.deepEqual(line().sent.map((message) => [message.n, message.do]), [[1, "run"], [3, "redo"]]);
  line().answer({ n: 1, ok: {} });
  line().answer({ n: 1, ok: {} }); // a second answer is of no harm
  await done;
  assert.deepEqual(states, ["connecting", "online", "offline", "offline", "online"]);
});

test("waits grow, up to a limit, and end at once when asked", () => {
  assert.deepEqual([1, 2, 3, 4, 5, 6, 20].map(backoff), [250, 500, 1000, 2000, 4000, 4000, 4000]);
  const { connection, lines, line, waits } = world();
  line().onclose?.({ code: 1006 });
  line().onclose?.({ code: 1006 });
  connection.retry();
  assert.equal(waits.at(-1)?.cancelled, true);
  assert.equal(lines.length, 2);
});

test("a page that the server does not know is reported", () => {
  const { line, lost } = world();
  line().onclose?.({ code: 4404 });
  assert.deepEqual(lost, [4404]);
});

test("events keep numbers as users wrote them", () => {
  const { line, events } = world();
  line().onopen?.();
  line().onmessage?.({ data: '{"event":"page","blocks":{"a":{"inputs":{"x":[1.0,2]}}}}' });
  const page = events[0] as unknown as { blocks: { a: { inputs: { x: unknown[] } } } };
  assert.equal(String(page.blocks.a.inputs.x[0]), "1.0");
});

test("a closed connection stays closed", async () => {
  const { connection, line, waits, lines } = world();
  const dropped = connection.send("run");
  connection.close();
  await assert.rejects(dropped);
  line().onclose?.({ code: 1000 });
  assert.equal(waits.length, 0);
  connection.retry();
  assert.equal(lines.length, 1);
});
