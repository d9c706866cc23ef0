// Times in words: relative for reading, exact for tooltips. In Chinese texts a space follows a number.

const STEPS: readonly [unit: Intl.RelativeTimeFormatUnit, seconds: number][] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

function formatRelative(seconds: number, language: string, sign: 1 | -1): string {
  const wholeSeconds = Math.max(0, Math.floor(seconds));
  const [unit, size] = STEPS.find(([, unitSeconds]) => wholeSeconds >= unitSeconds) ?? ["second", 1];
  const text = new Intl.RelativeTimeFormat(language, { style: "short", numeric: "auto" }).format(
    sign * Math.floor(wholeSeconds / size),
    unit,
  );
  return text.replace(/(?<=\d)(?=\p{Script=Han})/u, " ");
}

/** Format a past time as "5 sec. ago" in the language. A future time, from a clock that runs ahead, is shown as now. */
export function formatAgo(thenNs: number, nowMs: number, language: string): string {
  return formatRelative(nowMs / 1000 - thenNs / 1e9, language, -1);
}

/** Format a future time as "in 3 hr."; a past time is shown as now. */
export function formatUntil(thenNs: number, nowMs: number, language: string): string {
  return formatRelative(thenNs / 1e9 - nowMs / 1000, language, 1);
}

/** "Nov 22, 2026, 12:00 – 2:00 PM". */
export function formatExactRange(fromNs: number, untilNs: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).formatRange(
    fromNs / 1e6,
    untilNs / 1e6,
  );
}

/** Format a future time to the minute. */
export function formatExactMinute(thenNs: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).format(thenNs / 1e6);
}

export function formatExactDay(thenNs: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium" }).format(thenNs / 1e6);
}

export function formatExactTime(thenNs: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" }).format(thenNs / 1e6);
}
