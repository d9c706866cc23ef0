// Why a job or task waits, and when one that has ended is removed, in words.
import type { Wait } from "../api/model";
import { exactDay, exactMinute } from "../lib/relative-time";
import { amount } from "../lib/quota";
import { visible } from "../lib/text";
import { locale, t } from "../locales";

export function waitsFor({ reason, machine, until_ns, n, of }: Wait): string {
  const formatMoment = (value: number | null | undefined) =>
    reason === "hours" ? amount("device_ns", value ?? 0) : String(value ?? "");
  return t(`run.wait.${reason}`, {
    machine: visible(machine ?? ""),
    until: until_ns == null ? "" : exactMinute(until_ns, locale.value),
    n: formatMoment(n),
    of: formatMoment(of),
  });
}

export const removedOn = (atNs: number) => t("run.removed_on", { day: exactDay(atNs, locale.value) });
