// Which reports are laid over each other and which point is open: the address says it.
import { computed, type ComputedRef } from "vue";
import type { ReportRow } from "../api/model";
import { patchQuery, queryValue } from "./address";

/** The server takes no more at once. */
const MOST_REPORTS = 100;
const MOST_UNASKED = 8;

/** Ids in one parameter: only a comma inside an id needs a sign of its own. */
export function listText(ids: readonly string[]): string {
  return ids.map((id) => id.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
}

export function parseList(text: string): string[] {
  return [
    ...new Set(
      text
        .split(",")
        .filter(Boolean)
        .map((id) => id.replaceAll("%2C", ",").replaceAll("%25", "%")),
    ),
  ];
}

/** Without a choice, the run that is open, else what was measured last, with those of the same job. */
export function newest(reports: readonly ReportRow[], run: string | null = null): string[] {
  const first = reports.find((one) => one.id === run) ?? reports[0];
  return reports
    .filter(
      (one) =>
        (one.points > 0 || one.state === "running") &&
        one.job === first?.job &&
        one.model_sha256 === first.model_sha256,
    )
    .slice(0, MOST_UNASKED)
    .map((one) => one.id);
}

export interface Chosen {
  ids: ComputedRef<string[]>;
  /** Named by the address, but not there (yet). */
  missing: ComputedRef<string[]>;
  set: (ids: readonly string[]) => void;
}

export function useChosen(reports: () => readonly ReportRow[]): Chosen {
  const wanted = computed(() =>
    queryValue("reports") === null ? newest(reports(), queryValue("run")) : parseList(queryValue("reports") ?? ""),
  );
  const known = computed(() => new Set(reports().map((one) => one.id)));
  return {
    ids: computed(() => wanted.value.filter((id) => known.value.has(id)).slice(0, MOST_REPORTS)),
    missing: computed(() => wanted.value.filter((id) => !known.value.has(id))),
    // A comma alone says that nothing is chosen, which no parameter at all does not.
    set: (ids) => patchQuery({ reports: ids.length > 0 ? listText(ids) : "," }, false),
  };
}

export interface Place {
  report: string;
  batch: number;
}

export const openPoint = computed<Place | null>(() => {
  const [report, batch] = [queryValue("point"), Number(queryValue("batch") ?? Number.NaN)];
  return report !== null && Number.isInteger(batch) ? { report, batch } : null;
});

export function showPoint(place: Place | null): void {
  patchQuery({ point: place?.report ?? null, batch: place === null ? null : String(place.batch) }, true);
}

/** Points of charts are named "report|batch". */
export function placeOf(id: string): Place | null {
  const cut = id.lastIndexOf("|");
  const batch = Number(id.slice(cut + 1));
  return cut > 0 && Number.isInteger(batch) ? { report: id.slice(0, cut), batch } : null;
}

/** What the charts call each report: its spec, with its name or at last its id where several have the same. */
export function labelsOf(reports: readonly ReportRow[]): Map<string, string> {
  const ways: ((one: ReportRow) => string)[] = [
    (one) => one.spec,
    (one) => `${one.name} / ${one.spec}`,
    (one) => one.id,
  ];
  const way = ways.find((each) => new Set(reports.map(each)).size === reports.length) ?? ((one: ReportRow) => one.id);
  return new Map(reports.map((one) => [one.id, way(one)]));
}
