// Moments in words: relative for reading, exact for the tooltip.

const STEPS: readonly [unit: Intl.RelativeTimeFormatUnit, seconds: number][] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

function told(seconds: number, language: string, sign: 1 | -1): string {
  const whole = Math.max(0, Math.floor(seconds));
  const [unit, size] = STEPS.find(([, each]) => whole >= each) ?? ["second", 1];
  return new Intl.RelativeTimeFormat(language, { style: "short", numeric: "auto" }).format(
    sign * Math.floor(whole / size),
    unit,
  );
}

/** "5 sec. ago", "3 hr. ago" in the language; a clock that runs ahead of ours reads as now. */
export function ago(then_ns: number, now_ms: number, language: string): string {
  return told(now_ms / 1000 - then_ns / 1e9, language, -1);
}

/** "in 3 hr." of what is to come; what is over reads as now. */
export function until(then_ns: number, now_ms: number, language: string): string {
  return told(then_ns / 1e9 - now_ms / 1000, language, 1);
}

/** "Nov 22, 2026, 12:00 – 2:00 PM". */
export function exact_range(from_ns: number, until_ns: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).formatRange(
    from_ns / 1e6,
    until_ns / 1e6,
  );
}

/** To the minute: of what is to come. */
export function exact_minute(then_ns: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).format(then_ns / 1e6);
}

export function exact_day(then_ns: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium" }).format(then_ns / 1e6);
}

export function exact_time(then_ns: number, language: string): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" }).format(then_ns / 1e6);
}
