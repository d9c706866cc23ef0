// Reports of equal configuration are one line: the newest one, with the earlier ones as its history.
import type { ReportRow } from "../../api/model";
import { formatCount } from "../../lib/format";
import { t } from "../../locales";

export interface ListedReport {
  report: ReportRow;
  /** Newest first. */
  earlier: ReportRow[];
}

export function listedReports(reports: readonly ReportRow[]): ListedReport[] {
  const byId = new Map(reports.map((report) => [report.id, report]));
  return reports
    .filter((report) => report.newest)
    .map((report) => ({ report, earlier: report.earlier.flatMap((id) => byId.get(id) ?? []) }));
}

/** Return how many earlier reports there are, and the range of their best rates. */
export function earlierText(report: ReportRow): string {
  const [least, most] = [report.earlier_least_samples_per_s, report.earlier_most_samples_per_s].map((rate) =>
    rate === null ? "" : formatCount(Math.round(rate)),
  );
  const count = t("evaluation.earlier", { n: report.earlier.length });
  if (!least || !most) return count;
  return `${count} · ${t("evaluation.earlier_rate", { rates: least === most ? least : `${least} – ${most}` })}`;
}
