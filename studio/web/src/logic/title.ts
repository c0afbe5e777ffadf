// Titles seen from afar: where they may break, and how large they can be in their card.

const LETTER = 0.62; // of the size of the letters, near enough

/** The parts of a name between which a line may break: words of camel case, after underscores and slashes. */
export function partsOf(name: string): string[] {
  return name.match(/[^_/\\-]*?[a-z0-9](?=[A-Z])|[^_/\\-]*[_/\\-]+|[^_/\\-]+/g) ?? [name];
}

/** The largest size at which a title fits into a card, whatever the zoom. */
export function sizeIn(name: string, width: number, height: number): number {
  const parts = partsOf(name).map((part) => part.length);
  const inner = width - 16;
  for (let size = 64; size > 12; size -= 2) {
    const room = Math.floor(inner / (size * LETTER));
    if (Math.max(...parts) > room) continue;
    let [lines, filled] = [1, 0];
    for (const part of parts) {
      if (filled + part > room) {
        lines++;
        filled = 0;
      }
      filled += part;
    }
    if (lines * size * 1.15 <= height - 8) return size;
  }
  return 12;
}
