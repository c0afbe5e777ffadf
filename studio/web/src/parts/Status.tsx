// The line at the bottom, which screen readers hear, and the banners at the top: no connection, changed on disk.

import { progressText } from "../logic/page";
import { useStore } from "../store";
import { retry } from "../line";
import { keepMine, reload } from "../studio";

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

export function StatusLine() {
  const said = useStore((state) => state.said);
  const progress = useStore((state) => state.progress);
  const counts = useStore((state) => `${counted(state.page.order.length, "block")}, ${counted(state.wires.length, "wire")}`);
  const path = useStore((state) => state.page.path);
  const busy = useStore((state) => state.busy);
  return (
    <footer className="status">
      <p role="status" aria-live="polite" className={said.alarm ? "alarm" : ""}>
        {said.text}
        {said.n % 2 === 1 && "\u200b"}
      </p>
      {progress?.running && <span className="progress">{progressText(progress)}</span>}
      {progress?.running && <progress aria-label="Progress" max={Math.max(1, progress.steps > 1 ? progress.steps : progress.total)} value={progress.steps > 1 ? progress.step : progress.done} />}
      {busy && <span className="progress">{busy}</span>}
      {busy && <progress aria-label={busy} />}
      <span className="dim">{counts}</span>
      <span className="dim">{path ?? "not saved yet"}</span>
    </footer>
  );
}

export function Banners() {
  const connection = useStore((state) => state.connection);
  const lost = useStore((state) => state.lost);
  const disk = useStore((state) => state.disk);
  const loaded = useStore((state) => state.page.revision >= 0);
  return (
    <>
      {connection === "offline" && (
        <div className="banner warn" role="region" aria-label="Connection">
          <span>{lost ?? (loaded ? "The connection to the studio is lost. Reconnecting; nothing is lost, and your changes are sent later." : "The studio cannot be reached. Reconnecting.")}</span>
          <button type="button" onClick={retry}>
            Try now
          </button>
        </div>
      )}
      {disk && (
        <div className="banner" role="region" aria-label="Changed on disk">
          <span>The file of this page has changed on disk.</span>
          <button type="button" onClick={() => void reload()}>
            Reload
          </button>
          <button type="button" onClick={keepMine}>
            Keep
          </button>
        </div>
      )}
    </>
  );
}
