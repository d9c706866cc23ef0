// Numbers to text: units adapt to the value, three significant digits, unknown is a dash and never a zero.
import type { Cell } from "../api/model";
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

function long_duration(seconds: number): string {
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}${GAP}min${GAP}${whole % 60}${GAP}s`;
  return `${Math.floor(minutes / 60)}${GAP}h${GAP}${minutes % 60}${GAP}min`;
}

export function duration(ns: number): string {
  if (Math.abs(ns) >= 120e9) return (ns < 0 ? "-" : "") + long_duration(Math.abs(ns) / 1e9);
  return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
}

export function bytes(value: number): string {
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

export function rate(bytes_per_s: number): string {
  return scaled(bytes_per_s, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
}

export function operations(flo: number): string {
  return scaled(flo, 1000, ["FLO", "kFLO", "MFLO", "GFLO", "TFLO", "PFLO"]);
}

export function operation_rate(flop_per_s: number): string {
  return scaled(flop_per_s, 1000, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"]);
}

/** Operations done for each byte moved. */
export function intensity(flo_per_byte: number): string {
  const text = Math.abs(flo_per_byte) < 0.1 ? flo_per_byte.toPrecision(1) : significant(flo_per_byte);
  return `${text}${GAP}FLO/B`;
}

export function count(value: number): string {
  return Number.isInteger(value) ? grouped.format(value) : significant(value);
}

export function ratio(value: number): string {
  const percent = value * 100;
  if (percent === 0) return `0${GAP}%`;
  if (percent > 0 && percent < 0.05) return `<0.1${GAP}%`;
  const text = percent.toFixed(1);
  return `${text === "100.0" ? "100" : text}${GAP}%`;
}

/** Energy: joules, down to what one sample of a small model takes. */
export function energy(joules: number): string {
  return scaled(joules * 1e6, 1000, ["µJ", "mJ", "J", "kJ", "MJ"]);
}

export type Unit = "ns" | "joule" | "bytes" | "rate" | "flo" | "flop_rate" | "ratio" | "count" | "flag" | "dims" | "text";

const FORMATTERS: Record<Exclude<Unit, "flag" | "dims" | "text">, (value: number) => string> = {
  ns: duration,
  bytes,
  rate,
  flo: operations,
  flop_rate: operation_rate,
  ratio,
  count,
  joule: energy,
};

const RATIO_NAMES = new Set(["ratio", "utilization", "sm_efficiency", "occupancy", "pressure"]);
const FLAG_NAMES = new Set(["tensor_core", "tensor_core_eligible", "stable", "host_busy", "throttled"]);
const TEXT_NAMES = new Set(["report", "spec", "address", "id", "in_shapes", "out_shapes", "released_by", "step", "type", "worker", "name", "operator", "input_shapes", "call_stack", "category", "track_kind"]);

/** The unit that a column's or a fact's name promises (docs/http-api.md: keys end in their unit). */
export function unit_of(name: string): Unit {
  if (name.endsWith("_ns") || name.endsWith("_ns_per_step")) return "ns";
  if (name.endsWith("bytes_per_s") || name === "bandwidth") return "rate";
  if (name.endsWith("flops_per_s")) return "flop_rate";
  if (name === "bytes" || name.endsWith("_bytes")) return "bytes";
  if (name.includes("_j_per_")) return "joule";
  if (name.endsWith("_ratio") || RATIO_NAMES.has(name)) return "ratio";
  if (name === "flops" || name.endsWith("_flo")) return "flo";
  if (FLAG_NAMES.has(name)) return "flag";
  if (name === "grid" || name === "block") return "dims";
  return TEXT_NAMES.has(name) ? "text" : "count";
}

export function number_text(unit: Unit, value: number): string {
  return unit === "flag" || unit === "dims" || unit === "text" ? String(value) : FORMATTERS[unit](value);
}

function list_text(list: Cell[]): string {
  return list.map((entry) => (Array.isArray(entry) ? `[${list_text(entry)}]` : cell_text("text", entry))).join(", ");
}

/** What a table cell shows. */
export function cell_text(unit: Unit, value: Cell | undefined): string {
  if (value === null || value === undefined || value === "") return UNKNOWN;
  if (typeof value === "number") return Number.isFinite(value) ? number_text(unit, value) : UNKNOWN;
  if (typeof value === "boolean") return value ? "✓" : "✗";
  const text = Array.isArray(value) ? list_text(value) : visible(value);
  return unit === "dims" ? text.replace(/[[\]() ]/g, "").replaceAll(",", "×") : text;
}

const EXACT_UNIT: Partial<Record<Unit, string>> = {
  ns: "ns",
  bytes: "B",
  rate: "B/s",
  flo: "FLO",
  flop_rate: "FLOP/s",
  joule: "J",
};

/** The unrounded value, for the hover title of a cell. */
export function exact_text(unit: Unit, value: Cell | undefined): string {
  if (typeof value !== "number") return value === null || value === undefined ? "" : cell_text(unit, value);
  if (unit === "ratio") return `${precise.format(value * 100)} %`;
  const suffix = EXACT_UNIT[unit];
  return suffix ? `${precise.format(value)} ${suffix}` : precise.format(value);
}
