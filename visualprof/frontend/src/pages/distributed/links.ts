// The link matrix: the color value of a cell, and the cell of a pair of ranks.
import type { CollectivesAnswer, Table } from "../../api";
import type { Viewport } from "./heat-viewport";

export type LinkMetric = "latency" | "bandwidth";
export interface LinkCell extends Viewport {
  /** Index among the links; -1 if nothing was transferred. */
  link: number;
}
export type LinkEnds = Pick<CollectivesAnswer, "ends" | "ends_are">;

// Twice the typical time gets the last color, unless a link takes longer.
const MIN_DOUBLINGS = 1;

/** Convert a column to numbers, with null for unknown values. */
export function toNumbers(values: readonly unknown[] | null | undefined): (number | null)[] {
  return (values ?? []).map((value) => (typeof value === "number" && value > 0 ? value : null));
}

export function median(values: readonly (number | null)[]): number {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? (sorted[middle] ?? 1) : ((sorted[middle - 1] ?? 1) + (sorted[middle] ?? 1)) / 2;
}

/**
 * Return log2 of each link's ratio: how much longer than typical, or how far below the median bandwidth. Links without
 * a comparison count as typical.
 */
export function doublings(columns: Table["columns"], metric: LinkMetric): number[] {
  if (metric === "latency") return toNumbers(columns["slower"]).map((value) => (value === null ? 0 : Math.log2(value)));
  const rates = toNumbers(columns["bandwidth_bytes_per_s"]);
  const typical = median(rates);
  return rates.map((value) => (value === null ? 0 : Math.log2(typical / value)));
}

export function largestDoubling(values: readonly number[]): number {
  return values.reduce((largest, value) => Math.max(largest, Math.abs(value)), MIN_DOUBLINGS);
}

/** Return the row and column of a rank, or -1. */
export function rankIndex({ ends, ends_are }: LinkEnds, rank: unknown, host: unknown): number {
  if (ends_are !== "ranks") return ends.indexOf(String(ends_are === "host" ? host : rank));
  return ends.findIndex((name) => {
    const [first = NaN, last = first] = name.split("-").map(Number);
    return Number(rank) >= first && Number(rank) <= last;
  });
}

/** Return the links by matrix cell, row by row; -1 if nothing was transferred. */
export function toMatrix(columns: Table["columns"], count: number): Int32Array {
  const out = new Int32Array(count * count).fill(-1);
  (columns["row"] ?? []).forEach((row, i) => (out[Number(row) * count + Number(columns["column"]?.[i])] = i));
  return out;
}
