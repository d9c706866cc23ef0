// The matrix of transfers between ranks: its ends, and the cells of one group and one type of link.
import type { Table } from "../../api";
import type { Viewport } from "./heat-viewport";

type Columns = Table["columns"];

export interface TransferCell extends Viewport {
  /** Bytes of all transfers of the cell; 0 if nothing was transferred. */
  bytes: number;
  /** Time of these transfers. */
  linkNs: number;
}
export interface TransferMatrix {
  /** Ranks of the rows and columns. */
  ends: number[];
  /** Whether the ends are global ranks. Otherwise they are ranks within the group. */
  global: boolean;
  /** Cells by row * ends + column; null if nothing was transferred. */
  cells: (TransferCell | null)[];
}

export function distinct(values: readonly unknown[] | null | undefined): string[] {
  return [...new Set((values ?? []).map(String))];
}

/** Return the matrix of the transfers of a group over a type of link. */
export function transferMatrix(columns: Columns, group: string, link: string): TransferMatrix {
  const rows = (columns["group"] ?? []).flatMap((name, i) =>
    String(name) === group && String(columns["link"]?.[i]) === link ? [i] : [],
  );
  const numbers = (name: string) => rows.map((i) => columns[name]?.[i]);
  const global = [...numbers("source"), ...numbers("destination")].every((rank) => typeof rank === "number");
  const [from, to] = (global ? ["source", "destination"] : ["group_source", "group_destination"]).map((name) =>
    numbers(name).map(Number),
  ) as [number[], number[]];
  const ends = [...new Set([...from, ...to])].sort((a, b) => a - b);
  const indexOf = new Map(ends.map((rank, index) => [rank, index]));
  const cells = new Array<TransferCell | null>(ends.length ** 2).fill(null);
  rows.forEach((i, position) => {
    const [row, column] = [indexOf.get(from[position] ?? -1) ?? 0, indexOf.get(to[position] ?? -1) ?? 0];
    const cell = (cells[row * ends.length + column] ??= { row, column, rows: 1, columns: 1, bytes: 0, linkNs: 0 });
    cell.bytes += Number(columns["bytes"]?.[i]);
    cell.linkNs += Number(columns["link_ns"]?.[i]);
  });
  return { ends, global, cells };
}

/** Return bytes per second of a cell, or null if it has no time. */
export function cellRate(cell: TransferCell | null): number | null {
  return cell && cell.linkNs > 0 ? (cell.bytes / cell.linkNs) * 1e9 : null;
}
