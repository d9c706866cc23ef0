// Links of measurements and changes, and the order of series.
import type { RouteLocationRaw } from "vue-router";
import type { Cell, Columns } from "../../api/model";
import { formatRatio } from "../../lib/format";
import { sortRows, type SortKeys } from "../../lib/sort-rows";

export interface Measurement {
  run: Cell | undefined;
  worker: Cell | undefined;
  span: Cell | undefined;
  /** Batch size of a report; null for a recording. */
  batch: Cell | undefined;
}

type ListText = (ids: readonly string[]) => string;

/** Return the page of one measurement. */
export function measurementLocation(place: Measurement, listText: ListText): RouteLocationRaw {
  if (typeof place.batch === "number")
    return {
      path: "/evaluation",
      query: { reports: listText([String(place.run)]), point: String(place.run), batch: String(place.batch) },
    };
  return {
    path: "/overview",
    query: { run: String(place.run), worker: String(place.worker), span: String(place.span) },
  };
}

export interface Change {
  of: Cell | undefined;
  run: Cell | undefined;
  before: Cell | undefined;
  change: Cell | undefined;
  ratio: Cell | undefined;
}

/** Return the page that compares the runs before and after the last change of a series, or null. */
export function comparisonLocation(
  change: Change,
  listText: ListText,
): { kind: "worse" | "better"; share: string; to: RouteLocationRaw } | null {
  if (typeof change.run !== "string" || typeof change.before !== "string" || typeof change.ratio !== "number")
    return null;
  const to =
    change.of === "reports"
      ? { path: "/evaluation", query: { reports: listText([change.before, change.run]) } }
      : { path: "/overview", query: { run: change.run, base: change.before } };
  return {
    kind: change.change === "worse" ? "worse" : "better",
    share: `${change.ratio > 0 ? "+" : "−"}${formatRatio(Math.abs(change.ratio))}`,
    to,
  };
}

/**
 * Return the indexes of the rows whose name contains every word of a search; in the server's order unless columns are
 * chosen.
 */
export function sortSeries(columns: Columns | undefined, sort: SortKeys, search: string): number[] {
  const names = columns?.["series"] ?? [];
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const rowIndexes = [...names.keys()].filter((row) =>
    words.every((word) => String(names[row]).toLowerCase().includes(word)),
  );
  return sortRows(rowIndexes, sort, (row, column) => columns?.[column]?.[row]);
}
