// The first look around, in four steps. It stands in the inspector, covers nothing, and outlines what it speaks of.

import { useEffect } from "react";
import { openDialog, store, useStore } from "../store";

const SEEN = "rowgrad-tour";

const STEPS = [
  { title: "Draw", at: "palette", text: "Drag an operator onto the canvas, or press Ctrl K and type a few letters of its name. Every block is one operator." },
  { title: "Wire and type", at: "canvas", text: "Drag from a pin on the right of a block to one on the left of another; pins that fit glow. Type values for pins without a wire: 3, [0, 1, 2] or [[1, 2], [3, 4]]." },
  { title: "Run", at: "run", text: "Run computes what has changed, and shows each result on its block. Point at a row of a gradient, and the rows it came from light up." },
  { title: "Go backward", at: "examples", text: "“Add gradients” in a block’s menu draws the backward half. The examples show whole models; ? lists all keys." },
] as const;

export function beginTour(): void {
  try {
    if (localStorage.getItem(SEEN)) return;
  } catch {
    return; // without a memory it would come back each time
  }
  store.set({ tour: 0 });
}

function endTour(): void {
  store.set({ tour: null });
  try {
    localStorage.setItem(SEEN, "seen");
  } catch {
    // It will be offered again.
  }
}

export function Tour() {
  const at = useStore((state) => state.tour);
  const step = at === null ? undefined : STEPS[at];
  const catalogue = useStore((state) => state.catalogue); // the palette is there when the catalogue is
  useEffect(() => {
    const target = step && document.querySelector(`[data-tour="${step.at}"]`);
    target?.classList.add("toured");
    return () => target?.classList.remove("toured");
  }, [step, catalogue]);
  if (at === null || !step) return null;
  const last = at === STEPS.length - 1;
  return (
    <section className="tour" aria-label="Tour">
      <h2>
        {at + 1} of {STEPS.length}: {step.title}
      </h2>
      <p>{step.text}</p>
      <div className="buttons">
        {last ? (
          <button
            type="button"
            className="primary"
            onClick={() => {
              endTour();
              openDialog({ kind: "examples" });
            }}
          >
            See the examples
          </button>
        ) : (
          <button type="button" className="primary" onClick={() => store.set({ tour: at + 1 })}>
            Next
          </button>
        )}
        {at > 0 && (
          <button type="button" onClick={() => store.set({ tour: at - 1 })}>
            Back
          </button>
        )}
        <button type="button" onClick={endTour}>
          {last ? "Close the tour" : "Skip the tour"}
        </button>
      </div>
    </section>
  );
}
