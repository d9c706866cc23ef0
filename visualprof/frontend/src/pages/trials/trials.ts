// Trials as points with an axis per hyper-parameter and metric, and the filters in the address.
import type { Cell, TrialRow, TrialsList } from "../../api";
import { lineName } from "../../run-data/lines";

export type Value = string | number | boolean | null;

export interface Axis {
  /** `p.NAME` of a hyper-parameter, `m.NAME` of a metric. */
  id: string;
  name: string;
  isMetric: boolean;
  /** Distinct texts of an axis that is not numeric, sorted. */
  choices: readonly string[] | null;
  min: number;
  max: number;
  /** Whether the axis is logarithmic. */
  log: boolean;
}

export interface Trial {
  name: string;
  row: TrialRow;
  values: ReadonlyMap<string, Value>;
}

/** Chosen texts of an axis, or its smallest and largest number. */
export type Filter = readonly string[] | readonly [min: number, max: number];
export type Filters = Readonly<Record<string, Filter>>;
export type Goal = "min" | "max";

const LOG_RATIO = 100;
const SMALL_IS_BETTER = /loss|err|perplexity|latency|time|mae|mse/i;

export const suggestedGoal = (metric: string): Goal => (SMALL_IS_BETTER.test(metric) ? "min" : "max");

export function listTrials({ parameters, metrics, trials }: TrialsList): Trial[] {
  return trials.map((row) => ({
    name: lineName(row.run, row.line),
    row,
    values: new Map<string, Value>([
      ...parameters.map((name, index) => [`p.${name}`, row.settings[index] ?? null] as const),
      ...metrics.map((name, index) => [`m.${name}`, row.metrics[index] ?? null] as const),
    ]),
  }));
}

export function listAxes({ parameters, metrics }: TrialsList, trials: readonly Trial[]): Axis[] {
  const axis = (name: string, isMetric: boolean): Axis => {
    const id = `${isMetric ? "m" : "p"}.${name}`;
    const values = trials.map((trial) => trial.values.get(id) ?? null).filter((value) => value !== null);
    const numbers = values.filter((value) => typeof value === "number");
    if (numbers.length < values.length)
      return { id, name, isMetric, choices: [...new Set(values.map(String))].sort(), min: 0, max: 0, log: false };
    const min = numbers.reduce((a, b) => Math.min(a, b), Infinity);
    const max = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    return { id, name, isMetric, choices: null, min, max, log: min > 0 && max / min >= LOG_RATIO };
  };
  return [...parameters.map((name) => axis(name, false)), ...metrics.map((name) => axis(name, true))];
}

/** Return the position of a value on an axis, 0 to 1; null if the value is unknown. */
export function positionOn(axis: Axis, value: Value): number | null {
  if (value === null) return null;
  if (axis.choices) return (axis.choices.indexOf(String(value)) + 0.5) / axis.choices.length;
  const scale = axis.log ? Math.log : (number: number) => number;
  const [low, high] = [scale(axis.min), scale(axis.max)];
  return high > low ? (scale(Number(value)) - low) / (high - low) : 0.5;
}

/** Return the filter that a range of positions on an axis means, null if the range covers no value. */
export function filterOf(axis: Axis, from: number, to: number): Filter | null {
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  if (axis.choices) {
    const chosen = axis.choices.filter((text) => {
      const position = positionOn(axis, text) ?? -1;
      return position >= low && position <= high;
    });
    return chosen.length > 0 ? chosen : null;
  }
  const at = (position: number) =>
    axis.log ? axis.min * (axis.max / axis.min) ** position : axis.min + (axis.max - axis.min) * position;
  const rounded = (position: number) => Number(at(Math.max(0, Math.min(1, position))).toPrecision(6));
  return [low <= 0 ? axis.min : rounded(low), high >= 1 ? axis.max : rounded(high)];
}

/** Return the range of positions that a filter covers. */
export function rangeOf(axis: Axis, filter: Filter): [number, number] {
  if (!axis.choices) return [positionOn(axis, filter[0] ?? 0) ?? 0, positionOn(axis, filter[1] ?? 0) ?? 1];
  const positions = filter.map((text) => positionOn(axis, text) ?? 0);
  const half = 0.5 / axis.choices.length;
  return [Math.min(...positions) - half, Math.max(...positions) + half];
}

export function passes(trial: Trial, filters: Filters): boolean {
  return Object.entries(filters).every(([id, filter]) => {
    const value = trial.values.get(id) ?? null;
    if (value === null) return false;
    const [min, max] = filter;
    if (typeof min !== "number" || typeof max !== "number")
      return (filter as readonly string[]).includes(String(value));
    return typeof value === "number" && value >= min && value <= max;
  });
}

/** Return the filters in a text of the address; a text that is not valid means none. */
export function parseFilters(text: string): Filters {
  try {
    const parsed: unknown = JSON.parse(text || "{}");
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return {};
    return Object.fromEntries(Object.entries(parsed).filter(([, filter]) => isFilter(filter)));
  } catch {
    return {};
  }
}

function isFilter(value: unknown): value is Filter {
  if (!Array.isArray(value) || value.length === 0) return false;
  const isRange = value.length === 2 && value.every((part) => typeof part === "number");
  return isRange || value.every((part) => typeof part === "string");
}

/** Return the trials with the best first; trials without the metric come last. */
export function ranked(trials: readonly Trial[], metric: string, goal: Goal): Trial[] {
  const key = (trial: Trial) => {
    const value = trial.values.get(metric);
    return typeof value === "number" ? (goal === "min" ? value : -value) : Infinity;
  };
  return [...trials].sort((a, b) => (key(a) === key(b) ? 0 : key(a) - key(b)));
}

/** Return a cell of the table. */
export function cellOf(trial: Trial, column: string): Cell {
  if (column === "trial") return trial.name;
  if (column === "status") return trial.row.status;
  const value = trial.values.get(column) ?? null;
  return typeof value === "boolean" ? String(value) : value;
}
