// Numbers to text: units adapt to the value, three significant digits, unknown is a dash and never a zero.
import type { Cell, Kind } from "../api/model";
import { visible } from "./text";

export const UNKNOWN = "–";
// A no-break space keeps "1.24 ms" on one line in narrow cells.
const GAP = "\u00a0";

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });

/** Three significant digits, at most two decimals, thousands separated. */
export function significant(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return grouped.format(value);
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

/** Scales `value` down the ladder until it reads below `step`, counting what rounding would do to it. */
function scaled(value: number, step: number, units: readonly string[]): string {
  let rest = value;
  let unit = 0;
  while (unit < units.length - 1 && Math.max(Math.abs(rest), Math.abs(Number(rest.toPrecision(3)))) >= step) {
    rest /= step;
    unit += 1;
  }
  const text = unit === 0 && Number.isInteger(rest) ? grouped.format(rest) : significant(rest);
  return `${text}${GAP}${units[unit] ?? ""}`;
}

function longDuration(seconds: number): string {
  const totalSeconds = Math.round(seconds);
  const minutes = Math.floor(totalSeconds / 60);
  if (minutes < 60) return `${minutes}${GAP}min${GAP}${totalSeconds % 60}${GAP}s`;
  return `${Math.floor(minutes / 60)}${GAP}h${GAP}${minutes % 60}${GAP}min`;
}

export function duration(ns: number): string {
  if (Math.abs(ns) >= 120e9) return (ns < 0 ? "-" : "") + longDuration(Math.abs(ns) / 1e9);
  return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
}

export function bytes(value: number): string {
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

export function rate(bytesPerS: number): string {
  return scaled(bytesPerS, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
}

export function operations(flo: number): string {
  return scaled(flo, 1000, ["FLO", "kFLO", "MFLO", "GFLO", "TFLO", "PFLO"]);
}

export function operationRate(flopPerS: number): string {
  return scaled(flopPerS, 1000, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"]);
}

/** Operations done for each byte moved. */
export function intensity(floPerByte: number): string {
  const text = Math.abs(floPerByte) < 0.1 ? floPerByte.toPrecision(1) : significant(floPerByte);
  return `${text}${GAP}FLO/B`;
}

export function count(value: number): string {
  if (Number.isInteger(value)) return grouped.format(value);
  return Math.abs(value) < 0.01 ? value.toExponential(1) : significant(value);
}

export function ratio(value: number): string {
  const percent = value * 100;
  if (percent === 0) return `0${GAP}%`;
  if (percent > 0 && percent < 0.05) return `<0.1${GAP}%`;
  if (Math.abs(percent) >= 1000) return `${grouped.format(percent)}${GAP}%`;
  const text = percent.toFixed(1);
  return `${text === "100.0" ? "100" : text}${GAP}%`;
}

/** Energy: joules, down to what one sample of a small model takes. */
export function energy(joules: number): string {
  return scaled(joules * 1e6, 1000, ["µJ", "mJ", "J", "kJ", "MJ"]);
}

const DATE = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });

/** A moment of the Unix epoch as 2026-11-22 09:30, which reads the same in every language. */
export function moment(ns: number): string {
  return DATE.format(ns / 1e6);
}

const SECOND = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

/** What a recording is called: torch.profiler names files by s, ms, us or ns of the Unix epoch, which read as 2026-11-22 09:30:05. */
export function recordingName(name: string): string {
  return /^1\d{9}(\d{3}){0,3}$/.test(name) ? SECOND.format(Number(name.slice(0, 13).padEnd(13, "0"))) : visible(name);
}

// Kinds that can be compared by size: how they read, and the unit of their exact values.
const NUMBERS: Partial<Record<Kind, readonly [text: (value: number) => string, unit: string]>> = {
  ns: [duration, " ns"],
  bytes: [bytes, " B"],
  rate: [rate, " B/s"],
  flo: [operations, " FLO"],
  flop_rate: [operationRate, " FLOP/s"],
  ratio: [ratio, " %"],
  count: [count, ""],
  joule: [energy, " J"],
  moment: [moment, " ns"],
};

export function isNumber(kind: Kind): boolean {
  return kind in NUMBERS;
}

function listText(list: Cell[]): string {
  return list.map((entry) => (Array.isArray(entry) ? `[${listText(entry)}]` : cellText("text", entry))).join(", ");
}

/** What a table cell shows. */
export function cellText(kind: Kind, value: Cell | undefined): string {
  if (value === null || value === undefined || value === "") return UNKNOWN;
  if (typeof value === "number") return Number.isFinite(value) ? (NUMBERS[kind]?.[0] ?? String)(value) : UNKNOWN;
  if (typeof value === "boolean") return value ? "✓" : "✗";
  const text = Array.isArray(value) ? listText(value) : visible(value);
  return kind === "dims" ? text.replace(/[[\]() ]/g, "").replaceAll(",", "×") : text;
}

/** A change: its sign stands before it. */
export function signedText(kind: Kind, value: number): string {
  const text = cellText(kind, Math.abs(value));
  return text.startsWith("<") ? text : (value > 0 ? "+" : value < 0 ? "\u2212" : "") + text;
}

/** The unrounded value, for the hover title of a cell. */
export function exactText(kind: Kind, value: Cell | undefined): string {
  const number = NUMBERS[kind];
  if (typeof value !== "number" || !number) return value === null || value === undefined ? "" : cellText(kind, value);
  return precise.format(kind === "ratio" ? value * 100 : value) + number[1];
}
