// Round positions for the lines and labels of the time axis.
import { formatSignificant, withMinusSign } from "../../lib/format";

const STEPS = [1, 2, 5];
const UNITS: readonly [ns: number, unit: string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** Return the smallest of 1, 2, 5 x 10^n ns that is at least `minNs`. */
export function tickStep(minNs: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, minNs)));
  for (const step of STEPS) if (step * power >= minNs) return Math.max(1, step * power);
  return Math.max(1, 10 * power);
}

export function ticks(start: number, end: number, step: number): number[] {
  const first = Math.ceil(start / step);
  const last = Math.floor(end / step);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => (first + index) * step);
}

/** Format a time with the digits that the distance between ticks needs: "12.35 ms". */
export function tickLabel(ns: number, step: number): string {
  const [size, unit] = UNITS.find(([unitNs]) => Math.abs(ns) >= unitNs) ?? [1, "ns"];
  if (ns === 0) return "0";
  const digits = Math.max(0, Math.min(9, Math.round(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9)));
  return `${withMinusSign((ns / size).toFixed(digits))}\u00a0${unit}`;
}

/** Format a time with enough digits to distinguish neighbors. */
export function formatTime(ns: number): string {
  const size = UNITS.find(([unitNs]) => Math.abs(ns) >= unitNs);
  if (!size || size[0] === 1) return `${formatSignificant(Math.round(ns)).replace(/\.0+$/, "")}\u00a0ns`;
  const text = (ns / size[0]).toFixed(Math.min(6, Math.round(Math.log10(size[0]))));
  return `${withMinusSign(text)}\u00a0${size[1]}`;
}
