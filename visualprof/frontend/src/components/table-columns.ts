// How a column looks, from what it holds.
import type { Kind, Kinds } from "../api/model";
import { is_number } from "../lib/format";
import { column_labels, definition } from "../locales";

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
// The first name says what a row is, others what it belongs to.
const SECOND_NAME: Width = [150, 3];
const WIDTHS: Partial<Record<Kind, Width>> = {
  name: [200, 6],
  text: [160, 4],
  word: [70, 1],
  dims: [84, 0.5],
  id: [56, 0.3],
  flag: [60, 0.6],
  count: [60, 0.6],
  rate: [94, 0.6],
  flo: [94, 0.6],
  flop_rate: [116, 0.6],
};

// Short ones are as wide as their texts, up to this.
const AS_SHOWN = new Set<Kind>(["word", "dims", "id"]);
const MOST_PX = 170;

/** Wide characters (CJK) take two places of a Latin one. */
function text_width(text: string): number {
  return [...text].reduce((all, character) => all + (character > "\u2e80" ? 13.5 : /\d/.test(character) ? 8.3 : 7.6), 0);
}

/** The columns of a table; `scope` is its name in the locales, `texts` what its first rows show. What the answer does not say the kind of is text. */
export function columns_of(names: readonly string[], kinds: Kinds = {}, scope = "", texts: (name: string, kind: Kind) => string[] = () => []): Column[] {
  const labels = column_labels(names, kinds, scope);
  const lead = names.find((name) => kinds[name] === "name");
  return names.map((name) => {
    const kind = kinds[name] ?? "text";
    const label = labels[name] ?? name;
    const [width, grow] = kind === "name" && name !== lead ? SECOND_NAME : (WIDTHS[kind] ?? NUMBER);
    const shown = AS_SHOWN.has(kind) ? Math.max(0, ...new Set(texts(name, kind).map(text_width))) + 20 : 0;
    return { name, label, hint: definition(name, scope), kind, numeric: is_number(kind), width_px: Math.max(width, text_width(label) + 26, Math.min(MOST_PX, shown)), grow };
  });
}

export function grid_template(columns: readonly Column[]): string {
  return columns.map((column) => `minmax(${column.width_px}px, ${column.grow}fr)`).join(" ");
}

export function least_width(columns: readonly Column[]): number {
  return columns.reduce((all, column) => all + column.width_px, 0);
}
