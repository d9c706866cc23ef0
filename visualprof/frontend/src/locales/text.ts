// Lookups with a fallback: a newer server may have columns, views or findings that the locales do not know yet.
import type { Kinds } from "../api/model";
import { t, te } from "./i18n";

function firstText(keys: readonly string[]): string | null {
  const knownKey = keys.find(te);
  return knownKey === undefined ? null : t(knownKey);
}

export function textOr(key: string, fallback: string): string {
  return firstText([key]) ?? fallback;
}

/** Return the heading of a column. `scope` is its table, which may have a more precise heading. */
export function columnLabel(column: string, scope = ""): string {
  return (
    firstText([`column.in_${scope}.${column}`, `column.${column}`]) ?? toTitle(column.replace(/_(ns|bytes|ratio)$/, ""))
  );
}

/** Return the headings of a table. Equal headings also name their kind. */
export function columnLabels(columns: readonly string[], kinds: Kinds, scope = ""): Record<string, string> {
  const names = columns.map((column) => columnLabel(column, scope));
  const isDuplicate = (name: string) => names.indexOf(name) !== names.lastIndexOf(name);
  const label = (column: string, name: string) =>
    isDuplicate(name) ? t("table.of_kind", { name, kind: textOr(`kind.${kinds[column]}`, column) }) : name;
  return Object.fromEntries(columns.map((column, index) => [column, label(column, names[index] ?? column)]));
}

/** Convert "busy_time" to a heading. */
function toTitle(id: string): string {
  return id.charAt(0).toUpperCase() + id.slice(1).replaceAll("_", " ");
}

/** Return the name of a page or, if the locale has none, of its view. */
export function pageLabel(id: string): string {
  return textOr(`page.${id}`, toTitle(id));
}

/** Return the name of a part of a view: a parameter, an option, a chart or a table. */
export function partLabel(view: string, part: string): string {
  return textOr(`view.${view}.${part}`, toTitle(part));
}

/** Return the definition of a metric, or "". */
export function definition(column: string, scope = ""): string {
  return firstText([`metric.in_${scope}.${column}`, `metric.${column}`]) ?? "";
}

/** Return the text of a chart token. Step parts and stages use the names of categories; "|device" adds the side. */
export function chartText(key: string): string {
  const [name = key, side] = key.split("|");
  if (side !== undefined) return t("chart.of_side", { name: chartText(name), side: vocabularyText(side) });
  if (key.startsWith("derived.")) return t("overview.derived", { name: vocabularyText(key.slice("derived.".length)) });
  const plain = key.replace(/^(part|stage)\./, "category.");
  return textOr(plain, plain.replace(/^.*\./, ""));
}

/** Return the locale's name of a term of the server's vocabulary (categories, stages), or the term itself. */
export function vocabularyText(value: string): string {
  return textOr(`category.${value}`, value);
}

const slug = (text: string) => text.toLowerCase().replace(/[^a-z0-9]+/g, "_");
// "cuda:0 SM clock": the text before the counter's name is the name of the device.
const COUNTERS = [
  "host memory allocated",
  "host memory reserved",
  "memory allocated",
  "memory reserved",
  "involuntary switches",
  "mem utilization",
  "CPU pressure",
  "utilization",
  "temperature",
  "child CPU",
  "mem clock",
  "throttled",
  "SM clock",
  "memory",
  "power",
  "steal",
  "load",
  "CPU",
  "RSS",
];

/** Return the locale's name of a monitor counter. Other names, and a unit at the end, stay unchanged. */
export function counterName(name: string): string {
  const [, plain = name, unit = ""] = /^(.*?)( (?:%|MHz|W|C|bytes))?$/.exec(name) ?? [];
  const counter = COUNTERS.find((candidate) => plain === candidate || plain.endsWith(` ${candidate}`));
  if (counter === undefined) return name;
  const sign = unit === " bytes" ? "" : unit === " C" ? " °C" : unit;
  return `${plain.slice(0, plain.length - counter.length)}${textOr(`counter.${slug(counter)}`, counter)}${sign}`;
}

/** Return the label of a track. Profilers write "stream 7" and "thread 42" in English. */
export function trackLabel(name: string): string {
  return name.replace(/^(stream|thread) (-?\d+)(?!\S)/, (_, kind: string, n: string) => t(`counter.${kind}_n`, { n }));
}

// The server's counters of launches and copies, and MegEngine's. The memory of a CPU is that of all programs, so it is
// named after the machine.
const COUNTER_PATTERNS: readonly [pattern: RegExp, key: string][] = [
  [/^(.+) launches waiting$/, "queue_depth"],
  [/^(Mem(?:cpy|set)\b.*) GB\/s$/, "copy_bandwidth"],
  [/^(cpu\w*:\d+)_alloc_mem$/, "megengine_machine_memory"],
  [/^(\w+:\d+)_alloc_mem$/, "megengine_device_memory"],
  [/^nr_alive_tensor$/, "megengine_live_tensors"],
  [/^nr_op_pending$/, "megengine_pending_operators"],
  [/^gpu_usgae_ratio$/, "megengine_gpu_usage"],
];

/** Return the label of a timeline counter. The monitor's counters end in a unit, with two exceptions. */
export function counterLabel(name: string): string {
  for (const [pattern, key] of COUNTER_PATTERNS) {
    const match = pattern.exec(name);
    if (match) return t(`counter.${key}`, { device: trackLabel(match[1] ?? "") });
  }
  return / (%|MHz|W|C|bytes)$/.test(name) || name === "load" || name === "involuntary switches"
    ? counterName(name)
    : name;
}

/** Return "ONNX Runtime 1.32.0", or the name alone if the version is unknown. */
export function runtimeVersion(backend: string, version?: string | null): string {
  return [textOr(`framework.${backend}`, backend), version].filter(Boolean).join(" ");
}

/** Return the locale's text for a runtime's message, or the message itself. */
export function runtimeText(value: string): string {
  return textOr(`evaluation.said.${slug(value)}`, value);
}
