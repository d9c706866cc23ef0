// The reports that are compared and the open point, kept in the address.
import { computed, type ComputedRef } from "vue";
import type { ReportRow } from "../api/model";
import { patchQuery, queryValue } from "./address";

/** The server's limit. */
const MAX_REPORTS = 100;
const DEFAULT_REPORTS = 8;

/** Join ids in one parameter; only a comma inside an id must be escaped. */
export function joinList(ids: readonly string[]): string {
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

/** Without a choice: the reports of the selected run, or the newest ones of the same job. */
export function newestReports(reports: readonly ReportRow[], run: string | null = null): string[] {
  const first = reports.find((candidate) => candidate.id === run) ?? reports[0];
  return reports
    .filter(
      (candidate) =>
        (candidate.points + candidate.serving > 0 || candidate.state === "running") &&
        candidate.job === first?.job &&
        candidate.model_sha256 === first.model_sha256,
    )
    .slice(0, DEFAULT_REPORTS)
    .map((candidate) => candidate.id);
}

export interface SelectedReports {
  ids: ComputedRef<string[]>;
  /** Named in the address, but not available. */
  missing: ComputedRef<string[]>;
  set: (ids: readonly string[]) => void;
}

export function useSelectedReports(reports: () => readonly ReportRow[]): SelectedReports {
  const requestedIds = computed(() =>
    queryValue("reports") === null
      ? newestReports(reports(), queryValue("run"))
      : parseList(queryValue("reports") ?? ""),
  );
  const knownIds = computed(() => new Set(reports().map((report) => report.id)));
  return {
    ids: computed(() => requestedIds.value.filter((id) => knownIds.value.has(id)).slice(0, MAX_REPORTS)),
    missing: computed(() => requestedIds.value.filter((id) => !knownIds.value.has(id))),
    // A single comma means that nothing is chosen; a missing parameter means the default.
    set: (ids) => patchQuery({ reports: ids.length > 0 ? joinList(ids) : "," }, false),
  };
}

export interface ReportPoint {
  report: string;
  batch: number;
}

export const openPoint = computed<ReportPoint | null>(() => {
  const [report, batch] = [queryValue("point"), Number(queryValue("batch") ?? Number.NaN)];
  return report !== null && Number.isInteger(batch) ? { report, batch } : null;
});

export function showPoint(point: ReportPoint | null): void {
  patchQuery({ point: point?.report ?? null, batch: point === null ? null : String(point.batch) }, true);
}

/** Points of charts are named "report|batch". */
export function parsePoint(id: string): ReportPoint | null {
  const cut = id.lastIndexOf("|");
  const batch = Number(id.slice(cut + 1));
  return cut > 0 && Number.isInteger(batch) ? { report: id.slice(0, cut), batch } : null;
}

/** Return the label of each report in charts: its spec, with its name or finally its id if several have the same. */
export function reportLabels(reports: readonly ReportRow[]): Map<string, string> {
  const labelers: ((report: ReportRow) => string)[] = [
    (report) => report.spec,
    (report) => `${report.name} / ${report.spec}`,
    (report) => report.id,
  ];
  const labeler =
    labelers.find((candidate) => new Set(reports.map(candidate)).size === reports.length) ??
    ((report: ReportRow) => report.id);
  return new Map(reports.map((report) => [report.id, labeler(report)]));
}
