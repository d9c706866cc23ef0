// Rows of the table of points: their order, and why a cell is empty.
import { sortRows, type SortKeys } from "../../lib/sort-rows";
import type { Cell, Columns, PointAnswer } from "../../api/model";
import { runtimeText } from "../../locales";

/** Samples that a percentile needs for 99 % confidence (docs/measuring.md). */
const NEEDED_SAMPLES: Record<string, number> = { p50_ns: 11, p90_ns: 64, p95_ns: 130, p99_ns: 662, p999_ns: 6636 };

/** Return how many samples a percentile needs if there are too few; null otherwise. */
export function missingSamples(column: string, n: number): number | null {
  const needed = NEEDED_SAMPLES[column];
  return needed !== undefined && n < needed ? needed : null;
}

/** Return the row indexes in the requested order. */
export function orderedRows(table: Columns, sort: SortKeys): number[] {
  return sortRows([...(table["batch"] ?? []).keys()], sort, (row, column) => table[column]?.[row]);
}

// In reading order; the other facts of a point are in the table.
const FACT_COLUMNS = [
  "samples_per_s",
  "samples_per_s_margin",
  "qps",
  "whole_samples_per_s",
  "p50_ns",
  "p50_margin_ns",
  "p90_ns",
  "p95_ns",
  "p99_ns",
  "p99_margin_ns",
  "p999_ns",
  "mean_ns",
  "min_ns",
  "max_ns",
  "iqr_ns",
  "n",
  "duration_ns",
  "warmup_n",
  "first_ns",
  "load_ns",
  "rss_bytes",
  "gpu_memory_bytes",
  "energy_j_per_sample",
  "energy_j_per_million",
  "cost_per_million",
  "pressure",
  "involuntary_switches",
  "threads",
] as const;
// Shown if requests overlap.
const LOAD_COLUMNS = [
  "scenario",
  "concurrency",
  "offered_per_s",
  "unserved",
  "limit_ns",
  "limit_percentile",
  "limit_tail_ns",
  "limit_bound_ns",
  "verdict",
] as const;
const VOCABULARY_COLUMNS: readonly string[] = ["scenario", "verdict"];

export function loadFacts(facts: PointAnswer["facts"]): Record<string, Cell> {
  const plain = facts.scenario === null || (facts.scenario === "closed" && (facts.concurrency ?? 1) === 1);
  return Object.fromEntries(
    [...FACT_COLUMNS, ...(plain ? [] : LOAD_COLUMNS)].map((name) => [name, valueText(name, facts[name])]),
  );
}

/** Return the locale's text for a term about loads, or the term itself. */
export function valueText<T extends Cell>(column: string, value: T): T | string {
  return VOCABULARY_COLUMNS.includes(column) && typeof value === "string" ? runtimeText(value) : value;
}
