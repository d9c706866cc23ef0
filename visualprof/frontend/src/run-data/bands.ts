// The mean of several lines with a band: from the smallest to the largest line, or one standard deviation.
import type { ScalarLine } from "../api";
import { columnOf, type Numbers } from "./plot";

export type BandKind = "none" | "range" | "deviation";

export interface Band {
  color: string;
  x: number[];
  low: number[];
  mean: number[];
  high: number[];
}

const MAX_POSITIONS = 400;

/** Return the value of a line at a position between its first and last point, null outside of them. */
export function valueAt(x: Numbers, y: Numbers, position: number): number | null {
  let [low, high] = [0, x.length - 1];
  if (high < 0 || position < (x[0] ?? Infinity) || position > (x[high] ?? -Infinity)) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) <= position) low = middle;
    else high = middle;
  }
  const [from, to, start, end] = [x[low], x[high], y[low], y[high]];
  if (from == null || to == null || start == null || end == null) return null;
  return to > from ? start + ((end - start) * (position - from)) / (to - from) : start;
}

/** Return a band per color with at least two lines, at positions where at least two of them have a value. */
export function bandsOf(
  lines: readonly { line: ScalarLine; color: string }[],
  kind: BandKind,
  column: "last" | "smoothed",
): Band[] {
  if (kind === "none") return [];
  const groups = new Map<string, ScalarLine[]>();
  for (const { line, color } of lines) groups.set(color, [...(groups.get(color) ?? []), line]);
  return [...groups]
    .filter(([, members]) => members.length > 1)
    .map(([color, members]) => bandOf(color, members, kind, column))
    .filter(({ x }) => x.length > 0);
}

/** Return a band per line with a lower and an upper end in other tags of the same run, as layouts of charts define. */
export function marginBands(
  lines: readonly { line: ScalarLine; color: string }[],
  margins: readonly { value: string; lower: string; upper: string }[],
): Band[] {
  const find = (tag: string, { run, line }: ScalarLine) =>
    lines.find((other) => other.line.tag === tag && other.line.run === run && other.line.line === line)?.line;
  return margins.flatMap(({ value, lower, upper }) =>
    lines.flatMap(({ line, color }) => {
      const [low, high] = [find(lower, line), find(upper, line)];
      if (line.tag !== value || !low || !high) return [];
      const band: Band = { color, x: [], low: [], mean: [], high: [] };
      columnOf(line, "x").forEach((x, index) => {
        const mean = columnOf(line, "last")[index];
        const [bottom, top] = [low, high].map((end) => valueAt(columnOf(end, "x"), columnOf(end, "last"), x ?? NaN));
        if (x === null || mean == null || bottom == null || top == null) return;
        band.x.push(x);
        band.low.push(bottom);
        band.mean.push(mean);
        band.high.push(top);
      });
      return band.x.length > 0 ? [band] : [];
    }),
  );
}

function bandOf(color: string, lines: readonly ScalarLine[], kind: BandKind, column: "last" | "smoothed"): Band {
  const all = [...new Set(lines.flatMap((line) => columnOf(line, "x")))].filter((x) => x !== null);
  const sorted = all.sort((a, b) => a - b);
  const every = Math.ceil(sorted.length / MAX_POSITIONS);
  const band: Band = { color, x: [], low: [], mean: [], high: [] };
  sorted.forEach((position, index) => {
    if (index % every !== 0 && index !== sorted.length - 1) return;
    const values = lines
      .map((line) => valueAt(columnOf(line, "x"), columnOf(line, column), position))
      .filter((value) => value !== null);
    if (values.length < 2) return;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    const deviation = Math.sqrt(squares / (values.length - 1));
    band.x.push(position);
    band.mean.push(mean);
    band.low.push(kind === "range" ? Math.min(...values) : mean - deviation);
    band.high.push(kind === "range" ? Math.max(...values) : mean + deviation);
  });
  return band;
}
