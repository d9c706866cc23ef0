// The area between two curves over numbers. ECharts supports such an area only over categories.
import type { Option, Resolved } from "./theme";

type Row = readonly [x: number | null, low: number | null, high: number | null];
type Point = readonly [x: number, y: number];

/** Return the runs of adjacent rows that have both ends. A single row has no area. */
export function contiguousRuns(rows: readonly Row[]): Row[][] {
  const runs: Row[][] = [[]];
  for (const row of rows) {
    if (row.every((value) => value !== null)) runs.at(-1)?.push(row);
    else runs.push([]);
  }
  return runs.filter((run) => run.length > 1);
}

/**
 * Return the outline of the area: along the upper ends and back along the lower ones. `toPixel` maps to pixels; values
 * below a logarithmic axis are placed on it.
 */
export function bandOutline(run: readonly Row[], toPixel: (x: number, y: number) => Point, floor: number): Point[] {
  const at = (row: Row, end: 1 | 2): Point => {
    const [x, y] = toPixel(row[0] ?? 0, row[end] ?? 0);
    return [x, Number.isFinite(y) ? y : floor];
  };
  return [...run.map((row) => at(row, 2)), ...run.map((row) => at(row, 1)).reverse()];
}

interface Frame {
  dataIndexInside: number;
  coordSys: { y: number; height: number };
}

interface Drawing {
  coord: (point: Point) => Point;
  visual: (property: "color") => string;
}

/** Style a series whose data are rows of x, low and high. */
export function styleBand(series: Option): Option {
  const runs = contiguousRuns(series["data"] as unknown as Row[]);
  const renderItem = ({ dataIndexInside, coordSys }: Frame, api: Drawing) => {
    if (dataIndexInside > 0) return null;
    const shapes = runs.map((run) => ({
      points: bandOutline(run, (x, y) => api.coord([x, y]), coordSys.y + coordSys.height),
    }));
    return {
      type: "group",
      children: shapes.map((shape) => ({
        type: "polygon",
        shape,
        style: { fill: api.visual("color"), opacity: 0.18 },
      })),
    };
  };
  return {
    ...series,
    z: 1,
    clip: true,
    silent: true,
    encode: { x: 0, y: [1, 2] },
    renderItem: renderItem as unknown as Resolved,
  };
}
