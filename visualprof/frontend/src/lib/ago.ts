// Moments in words: relative for reading, exact for the tooltip.

const STEPS: readonly [unit: Intl.RelativeTimeFormatUnit, seconds: number][] = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];

/** "5 sec. ago", "3 hr. ago" in the language; a clock that runs ahead of ours reads as now. */
export function ago(then_ns: number, now_ms: number, language: string): string {
  const seconds = Math.max(0, Math.floor(now_ms / 1000 - then_ns / 1e9));
  const [unit, size] = STEPS.find(([, each]) => seconds >= each) ?? ["second", 1];
  return new Intl.RelativeTimeFormat(language, { style: "short", numeric: "auto" }).format(-Math.floor(seconds / size), unit);
}

/** "Nov 22, 2026, 12:00 – 2:00 PM". */
export function exact_range(from_ns: number, until_ns: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).formatRange(from_ns / 1e6, until_ns / 1e6);
}

export function exact_time(then_ns: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" }).format(then_ns / 1e6);
}
