// JSON that keeps numbers as they were written. JavaScript knows one kind of number: it would turn 1.0 into 1, and with it a float32
// literal into an int32 one, and round ids beyond 2⁵³. Such numbers stay text inside an `Exact`; all others are plain numbers.

export class Exact {
  constructor(readonly text: string) {}
  valueOf(): number {
    return Number(this.text);
  }
  toString(): string {
    return this.text;
  }
}

export type Json = string | number | boolean | null | Exact | Json[] | { [key: string]: Json };

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const ODD = /\d{16}|\d\.0+(?!\d)|\d[eE]/;

/** A number as it is written: plain where JavaScript would write it the same way. */
export function exactNumber(text: string): number | Exact {
  const value = Number(text);
  const whole = /^-?\d+$/.test(text);
  if (whole) return Number.isSafeInteger(value) ? value : new Exact(text);
  return Number.isInteger(value) || !Number.isFinite(value) ? new Exact(text) : value;
}

/** JSON.parse, with `Exact` where it is needed; most texts need none and are left to the browser. */
export function parse(text: string): Json {
  return ODD.test(text) ? new Reader(text).whole() : (JSON.parse(text) as Json);
}

class Reader {
  private at = 0;
  constructor(private readonly text: string) {}

  whole(): Json {
    const value = this.value();
    this.blank();
    if (this.at < this.text.length) this.fail();
    return value;
  }

  private blank(): void {
    while (" \t\r\n".includes(this.text[this.at] ?? "x")) this.at++;
  }

  private fail(): never {
    throw new SyntaxError(`not JSON at character ${this.at}`);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) this.fail();
    this.at += found[0].length;
    return found[0];
  }

  private take(mark: string): boolean {
    this.blank();
    if (this.text[this.at] !== mark) return false;
    this.at++;
    return true;
  }

  private value(): Json {
    this.blank();
    const first = this.text[this.at];
    if (first === "{") return this.object();
    if (first === "[") return this.array();
    if (first === '"') return JSON.parse(this.match(STRING)) as string;
    for (const [word, value] of [["true", true], ["false", false], ["null", null]] as const) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return exactNumber(this.match(NUMBER));
  }

  private array(): Json[] {
    const items: Json[] = [];
    this.at++;
    if (this.take("]")) return items;
    do items.push(this.value());
    while (this.take(","));
    if (!this.take("]")) this.fail();
    return items;
  }

  private object(): { [key: string]: Json } {
    const entries: { [key: string]: Json } = {};
    this.at++;
    if (this.take("}")) return entries;
    do {
      this.blank();
      const key = JSON.parse(this.match(STRING)) as string;
      if (!this.take(":")) this.fail();
      Object.defineProperty(entries, key, { value: this.value(), enumerable: true, writable: true, configurable: true });
    } while (this.take(","));
    if (!this.take("}")) this.fail();
    return entries;
  }
}

/** JSON.stringify, with the text of each `Exact`. */
export function stringify(value: unknown): string {
  if (value instanceof Exact) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => stringify(item ?? null)).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const parts = Object.entries(value).filter(([, item]) => item !== undefined);
    return `{${parts.map(([key, item]) => `${JSON.stringify(key)}:${stringify(item)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
