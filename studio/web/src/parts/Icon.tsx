// Small pictures for buttons, as outlines on a grid of 16.

const PATHS = {
  run: "M4 2.5v11l9-5.5z",
  pause: "M5 3v10M11 3v10",
  stop: "M3.5 3.5h9v9h-9z",
  step: "M3 3v10l6-5zM12 3v10",
  loop: "M12.5 5.5A5.2 5.2 0 1 0 13.2 9M13 2.5v3.3H9.7",
  reset: "M3.5 3.5v9M13 3.5L6.5 8l6.5 4.5z",
  undo: "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M5.8 3.5l-3 3 3 3",
  redo: "M13 6.5H6.5a3.5 3.5 0 0 0 0 7H10M10.2 3.5l3 3-3 3",
  add: "M8 3v10M3 8h10",
  remove: "M3.5 8h9",
  tidy: "M2.5 3h4v4h-4zM9.5 3h4v3h-4zM9.5 9.5h4v3.5h-4zM6.5 5h3M8 5v6h1.5",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  note: "M3 2.5h10v7.5l-3.5 3.5H3zM13 10H9.5v3.5",
  more: "M3.2 7.6v.8M8 7.6v.8M12.8 7.6v.8",
  expand: "M9.5 2.5h4v4M13.5 2.5L9 7M6.5 13.5h-4v-4M2.5 13.5L7 9",
  download: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13.5h10",
  table: "M2.5 3h11v10h-11zM2.5 6.4h11M2.5 9.7h11M6.2 3v10M9.9 3v10",
  text: "M3 4h10M3 8h10M3 12h6",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.4 10.4l3.2 3.2",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M4 6.5l4 4 4-4",
  right: "M6.5 4l4 4-4 4",
  panel: "M2.5 3h11v10h-11zM6 3v10",
  panelRight: "M2.5 3h11v10h-11zM10 3v10",
  file: "M4 2h5.5L12.5 5v9H4zM9.5 2v3h3",
  warn: "M8 2.5l6 11H2zM8 6.5v3.5M8 11.8v.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
