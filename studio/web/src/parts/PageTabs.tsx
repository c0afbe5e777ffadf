// The pages that are open, as tabs. Each keeps its own history and draft on the server; copies are pasted from one to the other.

import { useRef, type KeyboardEvent } from "react";
import { closeTab, newPage, showTab } from "../tabs";
import { useStore } from "../store";
import { Icon } from "./Icon";

export function PageTabs() {
  const tabs = useStore((state) => state.tabs);
  const current = useStore((state) => state.document);
  const list = useRef<HTMLDivElement>(null);
  const keys = (event: KeyboardEvent): void => {
    const at = tabs.findIndex((tab) => tab.document === current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (event.key === "Delete" && current) closeTab(current);
    else if (to !== undefined && tabs[to]) {
      showTab(tabs[to].document);
      list.current?.querySelectorAll<HTMLElement>("[role=tab]")[to]?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div className="page-tabs">
      <div ref={list} role="tablist" aria-label="Pages" onKeyDown={keys}>
        {tabs.map(({ document, name, dirty }) => (
          <button
            key={document}
            type="button"
            role="tab"
            aria-selected={document === current}
            aria-controls="canvas"
            tabIndex={document === current ? 0 : -1}
            title={dirty ? `${name}, not saved` : name}
            onClick={() => showTab(document)}
            onAuxClick={(event) => event.button === 1 && closeTab(document)}
          >
            {name || "page"}
            {dirty && <span aria-hidden="true"> ●</span>}
          </button>
        ))}
      </div>
      <button type="button" className="quiet tiny" aria-label="New tab" title="A new page in a tab" onClick={() => void newPage()}>
        <Icon name="add" />
      </button>
      {tabs.length > 1 && current && (
        <button type="button" className="quiet tiny" aria-label="Close this tab" title="Close this tab; unsaved changes stay under Open" onClick={() => closeTab(current)}>
          <Icon name="close" />
        </button>
      )}
    </div>
  );
}
