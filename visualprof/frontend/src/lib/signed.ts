import { ratio } from "./format";

/** A difference: what is more has a plus, what is less a minus as wide as it. */
export function signed(value: number, text: (size: number) => string): string {
  return value === 0 ? text(0) : (value > 0 ? "+" : "−") + text(Math.abs(value));
}

/** What lies between two figures, with its share of the first where that is no hair. */
export function change(before: number, now: number, text: (size: number) => string): string {
  const share = (now - before) / before;
  const told = before > 0 && Math.abs(share) >= 0.0005;
  return signed(now - before, text) + (told ? ` (${signed(share, ratio)})` : "");
}
