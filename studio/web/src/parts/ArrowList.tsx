// A list of buttons that is one stop for Tab: the arrow keys, Home and End go through it, however long it is.

import { useLayoutEffect, useRef, type KeyboardEvent, type ReactNode } from "react";

export function ArrowList({ className, children }: { className?: string; children: ReactNode }) {
  const list = useRef<HTMLDivElement>(null);
  const stop = useRef<HTMLButtonElement | null>(null);
  const buttons = (): HTMLButtonElement[] => [...(list.current?.querySelectorAll("button") ?? [])];
  const stopAt = (chosen: HTMLButtonElement | undefined): void => {
    for (const button of buttons()) button.tabIndex = button === chosen ? 0 : -1;
    stop.current = chosen ?? null;
  };
  // Buttons come and go with the filter and with closed families; a stop that is gone is the first button again.
  useLayoutEffect(() => {
    const all = buttons();
    stopAt(all.find((button) => button === stop.current) ?? all[0]);
  });
  const keys = (event: KeyboardEvent): void => {
    const all = buttons();
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    all[to]?.focus();
  };
  return (
    <div
      ref={list}
      className={className}
      onKeyDown={keys}
      onFocus={(event) => event.target instanceof HTMLButtonElement && stopAt(event.target)}
    >
      {children}
    </div>
  );
}
