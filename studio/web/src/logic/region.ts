// The part of a matrix that a heat-map shows: zoomed around a point, moved, and kept inside.

export interface View {
  top: number;
  bottom: number; // not included
  left: number;
  right: number;
}

/** The view `factor` as large, with what is at a share of it staying there. */
export function zoomed({ top, bottom, left, right }: View, factor: number, x: number, y: number): View {
  const [row, column] = [top + (bottom - top) * y, left + (right - left) * x];
  const height = (bottom - top) * factor;
  const width = (right - left) * factor;
  return { top: row - height * y, bottom: row + height * (1 - y), left: column - width * x, right: column + width * (1 - x) };
}

export const moved = ({ top, bottom, left, right }: View, rows: number, columns: number): View => ({ top: top + rows, bottom: bottom + rows, left: left + columns, right: right + columns });

/** Whole rows and columns, at least one of each, none outside. */
export function inside(view: View, rows: number, columns: number): View {
  const fit = (from: number, to: number, size: number): [number, number] => {
    const span = Math.max(1, Math.min(size, Math.round(to - from)));
    const first = Math.max(0, Math.min(size - span, Math.round(from)));
    return [first, first + span];
  };
  const [top, bottom] = fit(view.top, view.bottom, rows);
  const [left, right] = fit(view.left, view.right, columns);
  return { top, bottom, left, right };
}
