// How a column looks, from its name alone: unit, alignment, width.
import { unit_of, type Unit } from "../lib/format";
import { column_label, definition } from "../locales/text";

export interface Column {
  name: string;
  label: string;
  hint: string;
  unit: Unit;
  numeric: boolean;
  width_px: number;
  /** Share of the spare width; only text profits from it. */
  grow: number;
}

const TEXT_WIDTH_PX: Record<string, [width: number, grow: number]> = {
  name: [210, 6],
  spec: [200, 4],
  report: [220, 4],
  operator: [150, 3],
  input_shapes: [220, 4],
  call_stack: [260, 4],
  address: [134, 0.5],
  released_by: [170, 4],
  type: [150, 3],
  worker: [110, 2],
  step: [64, 0.5],
  id: [56, 0.3],
  in_shapes: [220, 4],
  out_shapes: [160, 3],
  grid: [92, 0.5],
  block: [84, 0.5],
  category: [108, 1],
  track_kind: [70, 0.5],
};

// Names in these tables are words or step numbers, not kernels.
const SHORT_NAMES = new Set(["steps", "device_steps", "stages"]);

const NUMBER_WIDTH_PX: Partial<Record<Unit, number>> = { flo: 94, flop_rate: 116, rate: 94, flag: 60, count: 60 };

// The manual of the tool that this table replaces calls the rate by the name of the amount.
const COLUMN_UNITS: Record<string, Unit> = { "profile.flops": "flop_rate" };

/** Wide characters (CJK) take two places of a Latin one. */
function label_width(label: string): number {
  return [...label].reduce((all, character) => all + (character > "\u2e80" ? 13 : 7.6), 0) + 26;
}

export function column_of(name: string, scope: string): Column {
  const unit = COLUMN_UNITS[`${scope}.${name}`] ?? unit_of(name);
  const label = column_label(name, scope);
  const numeric = unit !== "text" && unit !== "flag" && unit !== "dims";
  const short = name === "name" && SHORT_NAMES.has(scope);
  const [width, grow] = short ? [108, 1] : (TEXT_WIDTH_PX[name] ?? [NUMBER_WIDTH_PX[unit] ?? 80, 0.6]);
  return { name, label, hint: definition(name, scope), unit, numeric, width_px: Math.max(width, label_width(label)), grow };
}

export function grid_template(columns: readonly Column[]): string {
  return columns.map((column) => `minmax(${column.width_px}px, ${column.grow}fr)`).join(" ");
}

export function least_width(columns: readonly Column[]): number {
  return columns.reduce((all, column) => all + column.width_px, 0);
}
