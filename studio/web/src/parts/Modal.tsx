// Dialogs: the browser's own <dialog>, which keeps the focus inside and gives it back.

import { useLayoutEffect, useRef, type ReactNode } from "react";
import { Icon } from "./Icon";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  huge?: boolean; // as much as there is
  bare?: boolean; // no visible head: the content says what it is
}

export function Modal({ title, onClose, children, wide, huge, bare }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
    element?.querySelector<HTMLElement>("[data-first]")?.focus(); // the browser would take the first button
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={`modal${wide ? " wide" : ""}${huge ? " huge" : ""}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === dialog.current && onClose()}
    >
      <div className="modal-body">
        {!bare && (
          <header className="modal-head">
            <h2>{title}</h2>
            <button type="button" className="quiet" aria-label="Close" onClick={onClose}>
              <Icon name="close" />
            </button>
          </header>
        )}
        {children}
      </div>
    </dialog>
  );
}
