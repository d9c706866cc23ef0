// Convert numbers to text: units adapt to the value, three significant digits, and a dash for unknown values, never a
// zero.
import type { Cell, Kind } from "../api/model";
import { displayText } from "./text";

export const UNKNOWN = "–";
// A no-break space keeps "1.24 ms" on one line in narrow cells.
const NO_BREAK_SPACE = "\u00a0";

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });

/** Return the text of a number with a minus sign in place of its hyphen. */
export function withMinusSign(text: string): string {
  return text.replace(/^-/, "\u2212");
}

/** Three significant digits, at most two decimals, thousands separated. */
export function formatSignificant(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return withMinusSign(grouped.format(value));
  return withMinusSign(value.toFixed(size >= 9.995 ? 1 : 2));
}

/** Scale `value` down until it is below `step`, taking rounding into account. */
function formatScaled(value: number, step: number, units: readonly string[]): string {
  let rest = value;
  let unit = 0;
  while (unit < units.length - 1 && Math.max(Math.abs(rest), Math.abs(Number(rest.toPrecision(3)))) >= step) {
    rest /= step;
    unit += 1;
  }
  const text = unit === 0 && Number.isInteger(rest) ? withMinusSign(grouped.format(rest)) : formatSignificant(rest);
  return `${text}${NO_BREAK_SPACE}${units[unit] ?? ""}`;
}

function formatLongDuration(seconds: number): string {
  const totalSeconds = Math.round(seconds);
  const minutes = Math.floor(totalSeconds / 60);
  if (minutes < 60) return `${minutes}${NO_BREAK_SPACE}min${NO_BREAK_SPACE}${totalSeconds % 60}${NO_BREAK_SPACE}s`;
  return `${Math.floor(minutes / 60)}${NO_BREAK_SPACE}h${NO_BREAK_SPACE}${minutes % 60}${NO_BREAK_SPACE}min`;
}

export function formatDuration(ns: number): string {
  if (Math.abs(ns) >= 120e9) return (ns < 0 ? "\u2212" : "") + formatLongDuration(Math.abs(ns) / 1e9);
  return formatScaled(ns, 1000, ["ns", "µs", "ms", "s"]);
}

export function formatBytes(value: number): string {
  return formatScaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

export function formatRate(bytesPerS: number): string {
  return formatScaled(bytesPerS, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
}

export function formatOperations(flo: number): string {
  return formatScaled(flo, 1000, ["FLO", "kFLO", "MFLO", "GFLO", "TFLO", "PFLO"]);
}

export function formatOperationRate(flopPerS: number): string {
  return formatScaled(flopPerS, 1000, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"]);
}

/** Format operations per byte moved. */
export function formatIntensity(floPerByte: number): string {
  const text = Math.abs(floPerByte) < 0.1 ? withMinusSign(floPerByte.toPrecision(1)) : formatSignificant(floPerByte);
  return `${text}${NO_BREAK_SPACE}FLO/B`;
}

export function formatCount(value: number): string {
  if (Number.isInteger(value)) return withMinusSign(grouped.format(value));
  return Math.abs(value) < 0.01 ? withMinusSign(value.toExponential(1)) : formatSignificant(value);
}

export function formatRatio(value: number): string {
  const percent = value * 100;
  if (percent === 0) return `0${NO_BREAK_SPACE}%`;
  if (percent > 0 && percent < 0.05) return `<0.1${NO_BREAK_SPACE}%`;
  if (Math.abs(percent) >= 1000) return `${withMinusSign(grouped.format(percent))}${NO_BREAK_SPACE}%`;
  const text = withMinusSign(percent.toFixed(1));
  return `${text === "100.0" ? "100" : text}${NO_BREAK_SPACE}%`;
}

/** Format energy in joules, down to the energy of one sample of a small model. */
export function formatEnergy(joules: number): string {
  return formatScaled(joules * 1e6, 1000, ["µJ", "mJ", "J", "kJ", "MJ"]);
}

const DATE = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });

/** Format a time of the Unix epoch as 2026-11-22 09:30, independent of the language. */
export function formatMoment(ns: number): string {
  return DATE.format(ns / 1e6);
}

const SECOND = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

/**
 * Format the name of a recording. torch.profiler names files by s, ms, us or ns of the Unix epoch, shown as 2026-11-22
 * 09:30:05.
 */
export function formatRecordingName(name: string): string {
  return /^1\d{9}(\d{3}){0,3}$/.test(name)
    ? SECOND.format(Number(name.slice(0, 13).padEnd(13, "0")))
    : displayText(name);
}

// Kinds that can be compared by size: their formatter, and the unit of their exact values.
const NUMBERS: Partial<Record<Kind, readonly [text: (value: number) => string, unit: string]>> = {
  ns: [formatDuration, " ns"],
  bytes: [formatBytes, " B"],
  rate: [formatRate, " B/s"],
  flo: [formatOperations, " FLO"],
  flop_rate: [formatOperationRate, " FLOP/s"],
  ratio: [formatRatio, " %"],
  count: [formatCount, ""],
  joule: [formatEnergy, " J"],
  moment: [formatMoment, " ns"],
};

export function isNumber(kind: Kind): boolean {
  return kind in NUMBERS;
}

function formatList(list: Cell[]): string {
  return list.map((entry) => (Array.isArray(entry) ? `[${formatList(entry)}]` : formatCell("text", entry))).join(", ");
}

/** Format a table cell. */
export function formatCell(kind: Kind, value: Cell | undefined): string {
  if (value === null || value === undefined || value === "") return UNKNOWN;
  if (typeof value === "number") return Number.isFinite(value) ? (NUMBERS[kind]?.[0] ?? String)(value) : UNKNOWN;
  if (typeof value === "boolean") return value ? "✓" : "✗";
  const text = Array.isArray(value) ? formatList(value) : displayText(value);
  return kind === "dims" ? text.replace(/[[\]() ]/g, "").replaceAll(",", "×") : text;
}

/** Format a change with its sign. */
export function formatSigned(kind: Kind, value: number): string {
  const text = formatCell(kind, Math.abs(value));
  return text.startsWith("<") ? text : (value > 0 ? "+" : value < 0 ? "\u2212" : "") + text;
}

/** Format the unrounded value, for the tooltip of a cell. */
export function formatExact(kind: Kind, value: Cell | undefined): string {
  const number = NUMBERS[kind];
  if (typeof value !== "number" || !number) return value === null || value === undefined ? "" : formatCell(kind, value);
  return withMinusSign(precise.format(kind === "ratio" ? value * 100 : value)) + number[1];
}
