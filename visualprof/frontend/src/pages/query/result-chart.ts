// A chart of a result: which columns it can show, and its options, in the form of the server's charts.
import type { Cell, JsonObject, Kind } from "../../api/model";
import type { Column } from "../../components";

export const CHARTS = ["bar", "line", "scatter", "histogram"] as const;
export type ChartKind = (typeof CHARTS)[number];

export interface ChartChoice {
  kind: ChartKind;
  x: string;
  y: string;
}

type Cells = Readonly<Record<string, Cell[]>>;

export const MAX_BARS = 50;
export const MAX_POINTS = 5000;
const MAX_BINS = 40;
const FORMATS: Partial<Record<Kind, string>> = {
  ns: "ns",
  bytes: "bytes",
  ratio: "ratio",
  rate: "rate",
  flop_rate: "flop_rate",
  moment: "moment",
};

const isMeasure = ({ numeric, kind }: Column) => numeric && kind !== "id";
const formatter = (column: Column | undefined): string => `@f:${FORMATS[column?.kind ?? "count"] ?? "count"}`;
const format = (column: Column | undefined): JsonObject => ({ axisLabel: { formatter: formatter(column) } });

/** Return the columns that an axis of a chart can show. */
export function axisColumns(columns: readonly Column[], kind: ChartKind, axis: "x" | "y"): Column[] {
  // Times and sizes say more than counts.
  const measures = columns.filter(isMeasure).sort((a, b) => Number(a.kind === "count") - Number(b.kind === "count"));
  if (axis === "y") return kind === "histogram" ? [] : measures;
  if (kind === "bar") return [...columns].sort((a, b) => Number(a.numeric) - Number(b.numeric));
  return columns.filter(({ numeric }) => numeric);
}

/** Return the chosen columns, or the first suitable ones for missing choices; null if there are none. */
export function completeChoice(columns: readonly Column[], choice: ChartChoice): ChartChoice | null {
  const pick = (axis: "x" | "y", name: string, other = "") => {
    const suitable = axisColumns(columns, choice.kind, axis);
    const usual = suitable.find((column) => column.name !== other && (choice.kind === "bar" || isMeasure(column)));
    return suitable.find((column) => column.name === name)?.name ?? usual?.name ?? suitable[0]?.name;
  };
  const x = pick("x", choice.x);
  const y = choice.kind === "histogram" ? "" : pick("y", choice.y, x);
  return x === undefined || y === undefined ? null : { kind: choice.kind, x, y };
}

/** Return whether a result has columns for a chart. */
export function canDraw(columns: readonly Column[], kind: ChartKind): boolean {
  return completeChoice(columns, { kind, x: "", y: "" }) !== null;
}

const asNumber = (cell: Cell | undefined): number => (typeof cell === "number" ? cell : Number.NaN);
const asText = (cell: Cell | undefined): string => (cell === null || cell === undefined ? "–" : String(cell));

/** Return the options of a chart of the rows in the given order. */
export function createChart(
  cells: Cells,
  rows: readonly number[],
  columns: readonly Column[],
  choice: ChartChoice,
): JsonObject {
  const [x, y] = [choice.x, choice.y].map((name) => columns.find((column) => column.name === name));
  if (choice.kind === "bar") return barChart(cells, rows.slice(0, MAX_BARS), choice, y);
  if (choice.kind === "histogram")
    return histogram(
      rows.map((row) => asNumber(cells[choice.x]?.[row])),
      x,
    );
  const points = rows
    .slice(0, MAX_POINTS)
    .map((row) => [asNumber(cells[choice.x]?.[row]), asNumber(cells[choice.y]?.[row])] as const)
    .filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
  const axes = {
    xAxis: { type: "value", name: choice.x, ...format(x) },
    yAxis: { type: "value", name: choice.y, ...format(y) },
  };
  if (choice.kind === "line") {
    const sorted = [...points].sort(([a], [b]) => a - b);
    return { ...axes, series: [{ type: "line", name: choice.y, data: sorted.map((point) => [...point]) }] };
  }
  return {
    ...axes,
    tooltip: { fields: [x, y].map((column) => ({ name: column?.name ?? "", formatter: formatter(column) })) },
    series: [
      {
        type: "scatter",
        name: choice.y,
        symbolSize: 7,
        data: points.map((value) => ({ name: "", value: [...value] })),
      },
    ],
  };
}

function barChart(
  cells: Cells,
  rows: readonly number[],
  { x, y }: ChartChoice,
  column: Column | undefined,
): JsonObject {
  return {
    xAxis: { type: "category", name: x, data: rows.map((row) => asText(cells[x]?.[row])) },
    yAxis: { type: "value", ...format(column) },
    series: [{ type: "bar", name: y, data: rows.map((row) => cells[y]?.[row] ?? null) }],
  };
}

/** Count values in bins of equal width, as a line with steps. */
function histogram(values: readonly number[], column: Column | undefined): JsonObject {
  const finite = values.filter(Number.isFinite);
  const { edges, counts } = binCounts(finite);
  return {
    xAxis: { type: "value", name: column?.name ?? "", ...format(column) },
    yAxis: { type: "value", axisLabel: { formatter: "@f:count" } },
    series: [
      {
        type: "line",
        step: "end",
        name: column?.name ?? "",
        areaStyle: { opacity: 0.25 },
        data: edges.map((edge, index) => [edge, counts[index] ?? counts.at(-1) ?? 0]),
      },
    ],
  };
}

/** Return the edges of bins of equal width (one more than bins) and the number of values in each bin. */
export function binCounts(values: readonly number[]): { edges: number[]; counts: number[] } {
  const low = values.reduce((least, value) => Math.min(least, value), Infinity);
  const high = values.reduce((most, value) => Math.max(most, value), -Infinity);
  if (values.length === 0) return { edges: [], counts: [] };
  const bins = high > low ? Math.min(MAX_BINS, Math.ceil(Math.sqrt(values.length)) + 1) : 1;
  const width = (high - low) / bins || 1;
  const counts = new Array<number>(bins).fill(0);
  for (const value of values) {
    const bin = Math.min(bins - 1, Math.floor((value - low) / width));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  return { edges: Array.from({ length: bins + 1 }, (_, index) => low + index * width), counts };
}
