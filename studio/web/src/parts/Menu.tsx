// A button with a menu: arrow keys, Escape, and a click elsewhere close it. The list is drawn above everything, at its button.

import { useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { createPortal } from "react-dom";

export interface Item {
  label: string;
  do: () => void;
  disabled?: boolean;
  keys?: string;
}

interface Props {
  label: string;
  items: () => Item[];
  children: ReactNode;
  className?: string;
  title?: string;
  disabled?: boolean;
}

export function Menu({ label, items, children, className, title, disabled }: Props) {
  const [shown, setShown] = useState<Item[] | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = (): void => {
    setShown(null);
    button.current?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        className={className}
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={shown !== null}
        title={title ?? label}
        disabled={disabled}
        onClick={() => setShown(shown ? null : items())}
      >
        {children}
      </button>
      {shown && button.current && <MenuList items={shown} label={label} anchor={button.current.getBoundingClientRect()} onClose={close} />}
    </>
  );
}

interface ListProps {
  items: Item[];
  label: string;
  anchor: { left: number; top: number; bottom: number; right: number };
  onClose: () => void;
}

export function MenuList({ items, label, anchor, onClose }: ListProps) {
  const list = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState({ left: anchor.left, top: anchor.bottom + 4 });
  useLayoutEffect(() => {
    const box = list.current?.getBoundingClientRect();
    if (!box) return;
    const left = Math.max(8, Math.min(anchor.left, innerWidth - box.width - 8));
    const below = anchor.bottom + 4 + box.height <= innerHeight - 8;
    setPlace({ left, top: below ? anchor.bottom + 4 : Math.max(8, anchor.top - box.height - 4) });
    list.current?.querySelector<HTMLElement>("[role=menuitem]:not(:disabled)")?.focus();
  }, [anchor.left, anchor.top, anchor.bottom]);
  useEffect(() => {
    const elsewhere = (event: Event): void => {
      if (!list.current?.contains(event.target as globalThis.Node)) onClose();
    };
    addEventListener("pointerdown", elsewhere, true);
    return () => removeEventListener("pointerdown", elsewhere, true);
  });
  const keys = (event: KeyboardEvent): void => {
    const all = [...(list.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    event.stopPropagation();
    if (to !== undefined) {
      event.preventDefault();
      all.at(to % all.length)?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      onClose();
    }
  };
  const root = document.getElementById("menus");
  if (!root) return null;
  return createPortal(
    <div ref={list} className="menu" role="menu" aria-label={label} style={place} onKeyDown={keys}>
      {items.map((item) => (
        <button
          key={item.label}
          type="button"
          role="menuitem"
          tabIndex={-1}
          disabled={item.disabled}
          onClick={() => {
            onClose();
            item.do();
          }}
        >
          <span>{item.label}</span>
          {item.keys && <kbd aria-hidden="true">{item.keys}</kbd>}
        </button>
      ))}
    </div>,
    root,
  );
}
