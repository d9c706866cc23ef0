// The matrix of links: what a cell is worth in colour, and where a pair of ranks has its place in it.
import type { CollectivesAnswer, Table } from "../../api";
import type { Viewport } from "./heat-viewport";

export type LinkMetric = "latency" | "bandwidth";
export interface LinkCell extends Viewport {
  /** Its place among the links; -1 where nothing was exchanged. */
  link: number;
}
export type LinkEnds = Pick<CollectivesAnswer, "ends" | "ends_are">;

// Twice as long as usual has the last colour, unless something takes longer.
const MIN_DOUBLINGS = 1;

/** The figures of a column, null where one is unknown. */
export function toNumbers(values: readonly unknown[] | null | undefined): (number | null)[] {
  return (values ?? []).map((value) => (typeof value === "number" && value > 0 ? value : null));
}

export function median(values: readonly (number | null)[]): number {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? (sorted[middle] ?? 1) : ((sorted[middle - 1] ?? 1) + (sorted[middle] ?? 1)) / 2;
}

/** Doublings of each link: how much longer it takes than usual, or how far below the median its bandwidth is. What has nothing to be compared with is usual. */
export function doublings(columns: Table["columns"], metric: LinkMetric): number[] {
  if (metric === "latency") return toNumbers(columns["slower"]).map((value) => (value === null ? 0 : Math.log2(value)));
  const rates = toNumbers(columns["bandwidth_bytes_per_s"]);
  const typical = median(rates);
  return rates.map((value) => (value === null ? 0 : Math.log2(typical / value)));
}

export function largestDoubling(values: readonly number[]): number {
  return values.reduce((largest, value) => Math.max(largest, Math.abs(value)), MIN_DOUBLINGS);
}

/** The row, and the column, of a rank; -1 for none. */
export function rankIndex({ ends, ends_are }: LinkEnds, rank: unknown, host: unknown): number {
  if (ends_are !== "ranks") return ends.indexOf(String(ends_are === "host" ? host : rank));
  return ends.findIndex((name) => {
    const [first = NaN, last = first] = name.split("-").map(Number);
    return Number(rank) >= first && Number(rank) <= last;
  });
}

/** The links by their place in the matrix, row by row; -1 where nothing was exchanged. */
export function toMatrix(columns: Table["columns"], count: number): Int32Array {
  const out = new Int32Array(count * count).fill(-1);
  (columns["row"] ?? []).forEach((row, i) => (out[Number(row) * count + Number(columns["column"]?.[i])] = i));
  return out;
}
