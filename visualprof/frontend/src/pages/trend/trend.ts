// Links of measurements and changes, and the order of series.
import type { RouteLocationRaw } from "vue-router";
import type { Cell, Columns } from "../../api/model";
import { formatRatio } from "../../lib/format";

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

const rank = (value: Cell | undefined): number | string =>
  typeof value === "number" ? value : typeof value === "string" ? value.toLowerCase() : Number.NEGATIVE_INFINITY;

/**
 * Return the indexes of the rows whose name contains every word of a search; in the server's order unless one is
 * chosen.
 */
export function sortSeries(
  columns: Columns | undefined,
  sort: string,
  order: "asc" | "desc",
  search: string,
): number[] {
  const names = columns?.["series"] ?? [];
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const rowIndexes = Array.from({ length: names.length }, (_, row) => row).filter((row) =>
    words.every((word) => String(names[row]).toLowerCase().includes(word)),
  );
  const sortColumn = columns?.[sort];
  if (!sortColumn) return rowIndexes;
  const sign = order === "asc" ? 1 : -1;
  return rowIndexes.sort((a, b) => {
    const [rankA, other] = [rank(sortColumn[a]), rank(sortColumn[b])];
    return rankA === other ? a - b : sign * (rankA < other ? -1 : 1);
  });
}
