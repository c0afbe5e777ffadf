// Starts the page.

import "@xyflow/react/dist/base.css";
import "./styles/colours.css";
import "./styles/panels.css";
import "./styles/frame.css";
import "./styles/canvas.css";
import "./styles/cards.css";
import "./styles/literals.css";
import "./styles/results.css";
import "./styles/dialogs.css";
import "./styles/runs.css";
import "./styles/looks.css";
import "./styles/scale.css";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { inCell } from "./host";
import { listen } from "./keys";
import { beginTour } from "./parts/Tour";
import { say, store } from "./store";
import { unanswered } from "./line";
import { openFile, start } from "./studio";

const root = document.getElementById("studio");
if (!root) throw new Error("index.html has no place for the studio");
createRoot(root).render(<App />);
listen();
if (!inCell) beginTour();

// Files may be dropped anywhere, not only on the canvas.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const file = event.dataTransfer?.files[0];
  if (file) void openFile(file);
});

// The server keeps a draft of everything it was told; only what it was not told could be lost.
addEventListener("beforeunload", (event) => {
  const { connection, page } = store.get();
  if (!inCell && connection !== "online" && (page.dirty || unanswered() > 0)) event.preventDefault();
});

start().catch((error: unknown) => {
  store.set({ connection: "offline", lost: error instanceof Error ? error.message : String(error) });
  say("The studio could not be started.", true);
});
