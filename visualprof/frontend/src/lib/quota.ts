// The quota of a user, in the units that users type.
import type { QuotaRow, UsedRow } from "../api";

export type QuotaKind = keyof UsedRow;
/** Format a limit for input and display: in GB and hours. */
export const UNITS: Record<QuotaKind, number> = {
  jobs_waiting: 1,
  jobs_running: 1,
  upload_bytes: 1e9,
  device_ns: 3600e9,
};
export const QUOTA_KINDS = Object.keys(UNITS) as QuotaKind[];

/** At most two decimals: 0.25, 12, 1.5. */
export function formatAmount(kind: QuotaKind, value: number): string {
  return String(Math.round((value / UNITS[kind]) * 100) / 100);
}

/** Parse the inputs of a quota. An empty input means no limit. */
export function parseQuota(input: Readonly<Record<QuotaKind, string | number>>): QuotaRow {
  const bound = (kind: QuotaKind) => (input[kind] === "" ? null : Math.round(Number(input[kind]) * UNITS[kind]));
  return {
    jobs_waiting: bound("jobs_waiting"),
    jobs_running: bound("jobs_running"),
    upload_bytes: bound("upload_bytes"),
    device_ns: bound("device_ns"),
  };
}

export function quotaInputs(quota: QuotaRow): Record<QuotaKind, string> {
  const text = (kind: QuotaKind) =>
    quota[kind] === null || quota[kind] === undefined ? "" : String(quota[kind] / UNITS[kind]);
  return {
    jobs_waiting: text("jobs_waiting"),
    jobs_running: text("jobs_running"),
    upload_bytes: text("upload_bytes"),
    device_ns: text("device_ns"),
  };
}
