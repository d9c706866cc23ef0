// What a user may have, in the units in which people say it.
import type { QuotaRow, UsedRow } from "../api";

export type QuotaKind = keyof UsedRow;
/** Of a bound as it is typed, and shown: GB and hours. */
export const UNITS: Record<QuotaKind, number> = {
  jobs_waiting: 1,
  jobs_running: 1,
  upload_bytes: 1e9,
  device_ns: 3600e9,
};
export const QUOTA_KINDS = Object.keys(UNITS) as QuotaKind[];

/** At most two digits of a part: 0.25, 12, 1.5. */
export function formatAmount(kind: QuotaKind, value: number): string {
  return String(Math.round((value / UNITS[kind]) * 100) / 100);
}

/** What was typed: nothing is without a bound. */
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
