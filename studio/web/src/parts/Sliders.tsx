// Sliders that are bound to numbers of the page: while one moves, the number changes and what is stale runs.

import { brief } from "../logic/heat";
import { tunables, typedAs } from "../logic/outputs";
import { addSlider, beginSlide, changeSlider, removeSlider, slideTo } from "../runs";
import { openDialog, store, useStore } from "../store";
import { Icon } from "./Icon";

const near = (value: number, low: number, high: number): number => Number(value.toPrecision(Math.max(2, Math.min(9, 3 + Math.ceil(Math.log10(Math.max(1, Math.abs(value) / (high - low || 1))))))));

export function Sliders() {
  const sliders = useStore((state) => state.sliders);
  const page = useStore((state) => state.page);
  if (!sliders.length) return null;
  const known = tunables(store.get());
  return (
    <section className="sliders" aria-label="Sliders">
      {sliders.map((slider) => {
        const { block, name, low, high, whole } = slider;
        const found = known.find((item) => item.block === block && item.name === name);
        if (!found || page.revision < 0) return null;
        const [least, most] = [Math.min(low, found.value), Math.max(high, found.value)];
        const set = (value: number): void => void slideTo(slider, near(value, least, most), (number) => typedAs(found, number));
        return (
          <div key={`${block}:${name}`} className="slider">
            <span>
              {name} of {block} <strong>{brief(found.value)}</strong>
            </span>
            <button type="button" className="quiet tiny" aria-label={`Remove the slider of ${name} of ${block}`} title="Remove" onClick={() => removeSlider(slider)}>
              <Icon name="close" />
            </button>
            <input type="range" aria-label={`Slider of ${name} of ${block}`} min={least} max={most} step={whole ? 1 : (most - least) / 200} value={found.value} onPointerDown={beginSlide} onKeyDown={(event) => !event.repeat && beginSlide()} onChange={(event) => set(Number(event.target.value))} />
            <span className="slider-ends">
              {(["low", "high"] as const).map((end) => (
                <input key={end} type="number" aria-label={`${end === "low" ? "Least" : "Largest"} ${name} of ${block}`} step="any" defaultValue={slider[end]} onBlur={(event) => Number.isFinite(event.target.valueAsNumber) && changeSlider(slider, { [end]: event.target.valueAsNumber })} />
              ))}
            </span>
          </div>
        );
      })}
    </section>
  );
}

/** What can be done with the numbers of a block: a slider, a sweep. */
export function NumberTools({ block }: { block: string }) {
  const revision = useStore((state) => state.page.revision);
  const sliders = useStore((state) => state.sliders);
  const numbers = revision < 0 ? [] : tunables(store.get()).filter((item) => item.block === block);
  if (!numbers.length) return null;
  return (
    <div className="number-tools">
      {numbers.map(({ name, value, whole }) => (
        <div key={name} className="number-tool">
          <span>
            {name} <span className="dim">{brief(value)}</span>
          </span>
          <button type="button" aria-label={`Slider for ${name} of ${block}`} disabled={sliders.some((one) => one.block === block && one.name === name)} onClick={() => addSlider(block, name, value, whole)}>
            Slider
          </button>
          <button type="button" aria-label={`Sweep ${name} of ${block}`} onClick={() => openDialog({ kind: "sweep", target: `${block}:${name}` })}>
            Sweep
          </button>
        </div>
      ))}
    </div>
  );
}
