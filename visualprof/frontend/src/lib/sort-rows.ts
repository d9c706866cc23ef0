import type { Cell } from "../api/model";

/** One of the columns by which a table is sorted. */
export interface SortKey {
  column: string;
  descending: boolean;
}

/** The most significant column first; empty for the order of the server. */
export type SortKeys = readonly SortKey[];

function compareCells(a: Cell, b: Cell): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "boolean" && typeof b === "boolean") return Number(a) - Number(b);
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Sort rows. Unknown values come last in both orders; equal rows keep their order. */
export function sortRows<T>(
  rows: readonly T[],
  keys: SortKeys,
  cell: (row: T, column: string) => Cell | undefined,
): T[] {
  const keyed = rows.map((row) => ({ row, cells: keys.map(({ column }) => cell(row, column) ?? null) }));
  const compare = (a: Cell, b: Cell, descending: boolean) =>
    a === null || b === null ? Number(a === null) - Number(b === null) : (descending ? -1 : 1) * compareCells(a, b);
  return keyed
    .sort((a, b) =>
      keys.reduce((order, key, i) => order || compare(a.cells[i] ?? null, b.cells[i] ?? null, key.descending), 0),
    )
    .map(({ row }) => row);
}
