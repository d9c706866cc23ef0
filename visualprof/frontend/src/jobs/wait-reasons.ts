// Texts: why a job or task waits, and when a finished job is deleted.
import type { Wait } from "../api/model";
import { formatExactDay, formatExactMinute } from "../lib/relative-time";
import { formatAmount } from "../lib/quota";
import { displayText } from "../lib/text";
import { locale, t } from "../locales";

export function waitReason({ reason, machine, until_ns, n, of }: Wait): string {
  const formatMoment = (value: number | null | undefined) =>
    reason === "hours" ? formatAmount("device_ns", value ?? 0) : String(value ?? "");
  return t(`run.wait.${reason === "turn" && until_ns != null ? "turn_at" : reason}`, {
    machine: displayText(machine ?? ""),
    until: until_ns == null ? "" : formatExactMinute(until_ns, locale.value),
    n: formatMoment(n),
    of: formatMoment(of),
  });
}

export const removalText = (atNs: number) => t("run.removed_on", { day: formatExactDay(atNs, locale.value) });
