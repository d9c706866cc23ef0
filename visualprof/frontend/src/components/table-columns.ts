// How a column looks, from what it holds.
import type { Kind, Kinds } from "../api/model";
import { is_number } from "../lib/format";
import { column_labels, definition } from "../locales/text";

export interface Column {
  name: string;
  label: string;
  hint: string;
  kind: Kind;
  numeric: boolean;
  width_px: number;
  /** Share of the spare width; only text profits from it. */
  grow: number;
}

type Width = readonly [width_px: number, grow: number];
const NUMBER: Width = [80, 0.6];
const WIDTHS: Partial<Record<Kind, Width>> = {
  name: [210, 6],
  text: [190, 4],
  word: [108, 1],
  dims: [92, 0.5],
  id: [56, 0.3],
  flag: [60, 0.6],
  count: [60, 0.6],
  rate: [94, 0.6],
  flo: [94, 0.6],
  flop_rate: [116, 0.6],
};

/** Wide characters (CJK) take two places of a Latin one. */
function label_width(label: string): number {
  return [...label].reduce((all, character) => all + (character > "\u2e80" ? 13 : 7.6), 0) + 28;
}

/** The columns of a table; `scope` is its name in the locales. What the answer does not say the kind of is text. */
export function columns_of(names: readonly string[], kinds: Kinds = {}, scope = ""): Column[] {
  const labels = column_labels(names, kinds, scope);
  return names.map((name) => {
    const kind = kinds[name] ?? "text";
    const label = labels[name] ?? name;
    const [width, grow] = WIDTHS[kind] ?? NUMBER;
    return { name, label, hint: definition(name, scope), kind, numeric: is_number(kind), width_px: Math.max(width, label_width(label)), grow };
  });
}

export function grid_template(columns: readonly Column[]): string {
  return columns.map((column) => `minmax(${column.width_px}px, ${column.grow}fr)`).join(" ");
}

export function least_width(columns: readonly Column[]): number {
  return columns.reduce((all, column) => all + column.width_px, 0);
}
