import type { Cell } from "../api/model";

function compareCells(a: Cell, b: Cell): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "boolean" && typeof b === "boolean") return Number(a) - Number(b);
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Sort rows. Unknown values come last in both orders; equal rows keep their order. */
export function sortRows<T>(rows: readonly T[], cell: (row: T) => Cell | undefined, order: string): T[] {
  const keyed = rows.map((row) => ({ row, key: cell(row) ?? null }));
  const sign = order === "asc" ? 1 : -1;
  return keyed
    .sort((a, b) => Number(a.key === null) - Number(b.key === null) || sign * compareCells(a.key, b.key))
    .map(({ row }) => row);
}
