// Rows of the table of points: their order, and why a cell is empty.
import { in_order } from "../../lib/order";
import type { Cell, Columns, PointAnswer } from "../../api/model";

/** Samples that a percentile needs for 99 % confidence (docs/remote.md). */
const NEEDED: Record<string, number> = { p50_ns: 11, p90_ns: 64, p95_ns: 130, p99_ns: 662, p999_ns: 6636 };

/** How many samples a percentile would need, when these are too few; null for anything else. */
export function why_unknown(column: string, n: number): number | null {
  const needed = NEEDED[column];
  return needed !== undefined && n < needed ? needed : null;
}

/** Places of the rows in the wanted order. */
export function ordered_rows(table: Columns, sort: string, order: string): number[] {
  const places = [...(table["batch"] ?? []).keys()];
  const values = table[sort];
  return values ? in_order(places, (place) => values[place], order) : places;
}

// In the order of reading; what else a point has is in the table.
const FACTS = [
  "samples_per_s", "samples_per_s_margin", "qps", "whole_samples_per_s", "p50_ns", "p50_margin_ns", "p90_ns", "p95_ns", "p99_ns", "p99_margin_ns", "p999_ns", "mean_ns", "min_ns", "max_ns", "iqr_ns",
  "n", "duration_ns", "warmup_n", "first_ns", "load_ns", "rss_bytes", "gpu_memory_bytes", "energy_j_per_sample", "pressure", "involuntary_switches", "threads",
] as const;

export function facts_of(facts: PointAnswer["facts"]): Record<string, Cell> {
  return Object.fromEntries(FACTS.map((name) => [name, facts[name]]));
}
