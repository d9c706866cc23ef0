// The rows of the list of runs: from the list that the shell polls, completed by the main numbers of each run.
import type { Cell, Kinds, Run, RunHeadline, Span } from "../../api";
import { sortRows, type SortKeys } from "../../lib/sort-rows";
import { textOr } from "../../locales";
import { runSpans } from "../../state/runs";

export interface RunRow {
  run: Run;
  /** The recording that the overview shows first. */
  first: Span | null;
  steps: number | null;
  /** Null without recordings: the size of run data is not known. */
  size_bytes: number | null;
  warnings: number;
  /** Number of files that are not read yet. */
  unread: number;
  failed: number;
  /** Undefined while it is not known. */
  headline: RunHeadline | null | undefined;
}

/** The columns in their usual order, with the kinds of their values. */
export const KINDS = {
  name: "name",
  framework: "word",
  device: "word",
  steps: "count",
  step: "ns",
  utilization: "ratio",
  date: "moment",
  size: "bytes",
  warnings: "count",
} as const satisfies Kinds;

const HEADLINE_COLUMNS: readonly string[] = ["device", "step", "utilization"];

/** Whether sorting needs the main numbers of all runs. */
export function needsHeadlines(keys: SortKeys): boolean {
  return keys.some(({ column }) => HEADLINE_COLUMNS.includes(column));
}

/** Identifies the content of a run: numbers of an older content are asked for again. */
export function runStamp(run: Run): string {
  const first = run.workers[0]?.spans[0];
  return `${first?.modified_ns} ${first?.state}`;
}

export function toRow(run: Run, headline: RunHeadline | null | undefined): RunRow {
  const spans = runSpans(run);
  const first = run.workers[0]?.spans[0] ?? null;
  const count = (states: readonly string[]) => spans.filter((span) => states.includes(span.state)).length;
  return {
    run,
    first,
    steps: first && first.state === "ready" ? first.steps.length : null,
    size_bytes: first && spans.reduce((sum, span) => sum + span.size_bytes, 0),
    warnings: spans.reduce((sum, span) => sum + span.warnings.length, 0),
    unread: count(["waiting", "parsing"]),
    failed: count(["failed"]),
    headline,
  };
}

export function deviceText(row: RunRow): string | null {
  const names = row.headline?.devices ?? [];
  const distinct = [...new Set(names)];
  return distinct.length === 0 ? null : distinct.map((name) => countText(name, names)).join(", ");
}

function countText(name: string, names: readonly string[]): string {
  const count = names.filter((candidate) => candidate === name).length;
  return count > 1 ? `${count} × ${name}` : name;
}

/** Return the value of a column: undefined while it is requested, null if it is unknown. */
export function cellOf(row: RunRow, column: string): Cell | undefined {
  const isRequested = row.headline === undefined && row.first?.state === "ready";
  if (isRequested && HEADLINE_COLUMNS.includes(column)) return undefined;
  switch (column) {
    case "name":
      return row.run.name || row.run.id;
    case "framework":
      return row.run.frameworks.map((name) => textOr(`framework.${name}`, name)).join(", ") || null;
    case "device":
      return textOr(`device_type.${deviceText(row)}`, deviceText(row) ?? "") || null;
    case "steps":
      return row.steps;
    case "step":
      return row.headline?.step_median_ns ?? null;
    case "utilization":
      return row.headline?.utilization ?? null;
    case "date":
      return row.run.modified_ns;
    case "size":
      return row.size_bytes;
    case "warnings":
      return row.warnings + row.failed || null;
    default:
      return null;
  }
}

/** Return the rows that contain all words of a search, in order. */
export function arrange(rows: readonly RunRow[], search: string, keys: SortKeys): RunRow[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = rows.filter((row) => {
    const text = [row.run.name, row.run.id, ...row.run.frameworks, deviceText(row) ?? ""].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return sortRows(matching, keys, cellOf);
}
