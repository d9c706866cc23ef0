// Lookups with a fallback: a server may know columns, views or findings that this page has no words for yet.
import type { Kinds } from "../api/model";
import { t, te } from "./i18n";

function firstText(keys: readonly string[]): string | null {
  const knownKey = keys.find(te);
  return knownKey === undefined ? null : t(knownKey);
}

export function textOr(key: string, fallback: string): string {
  return firstText([key]) ?? fallback;
}

/** The heading of a column; `scope` is the table it stands in, which may name it more precisely. */
export function columnLabel(column: string, scope = ""): string {
  return (
    firstText([`column.in_${scope}.${column}`, `column.${column}`]) ?? toTitle(column.replace(/_(ns|bytes|ratio)$/, ""))
  );
}

/** The headings of one table: those that would read alike say what they count, too. */
export function columnLabels(columns: readonly string[], kinds: Kinds, scope = ""): Record<string, string> {
  const names = columns.map((column) => columnLabel(column, scope));
  const isDuplicate = (name: string) => names.indexOf(name) !== names.lastIndexOf(name);
  const label = (column: string, name: string) =>
    isDuplicate(name) ? t("table.of_kind", { name, kind: textOr(`kind.${kinds[column]}`, column) }) : name;
  return Object.fromEntries(columns.map((column, index) => [column, label(column, names[index] ?? column)]));
}

/** "busy_time" as a heading. */
function toTitle(id: string): string {
  return id.charAt(0).toUpperCase() + id.slice(1).replaceAll("_", " ");
}

/** The name of a page, or of a view that the locale does not know. */
export function pageLabel(id: string): string {
  return textOr(`page.${id}`, toTitle(id));
}

/** The name of a part of a view: a parameter, a choice, a chart or a table. */
export function partLabel(view: string, part: string): string {
  return textOr(`view.${view}.${part}`, toTitle(part));
}

/** What a number means, or nothing. */
export function definition(column: string, scope = ""): string {
  return firstText([`metric.in_${scope}.${column}`, `metric.${column}`]) ?? "";
}

/** The text of a chart's token. Parts of a step and stages are categories by other names; "|device" adds the side. */
export function chartText(key: string): string {
  const [name = key, side] = key.split("|");
  if (side !== undefined) return t("chart.of_side", { name: chartText(name), side: vocabularyText(side) });
  if (key.startsWith("derived.")) return t("overview.derived", { name: vocabularyText(key.slice("derived.".length)) });
  const plain = key.replace(/^(part|stage)\./, "category.");
  return textOr(plain, plain.replace(/^.*\./, ""));
}

/** The locale's word for one of the server's closed vocabulary (categories, stages), else the word itself. */
export function vocabularyText(value: string): string {
  return textOr(`category.${value}`, value);
}

const slug = (text: string) => text.toLowerCase().replace(/[^a-z0-9]+/g, "_");
// "cuda:0 SM clock": what stands before the last words is the device's own name.
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

/** What the monitor counts, by the locale's name; anything else as it is. A unit at the end stays. */
export function counterName(name: string): string {
  const [, plain = name, unit = ""] = /^(.*?)( (?:%|MHz|W|C|bytes))?$/.exec(name) ?? [];
  const counter = COUNTERS.find((candidate) => plain === candidate || plain.endsWith(` ${candidate}`));
  if (counter === undefined) return name;
  const sign = unit === " bytes" ? "" : unit === " C" ? " °C" : unit;
  return `${plain.slice(0, plain.length - counter.length)}${textOr(`counter.${slug(counter)}`, counter)}${sign}`;
}

/** The label of a counter of the timeline: the monitor's own end in a unit, but for two. */
export function counterLabel(name: string): string {
  return / (%|MHz|W|C|bytes)$/.test(name) || name === "load" || name === "involuntary switches"
    ? counterName(name)
    : name;
}

/** Words with which runtimes say what they did; anything else as it is. */
export function runtimeText(value: string): string {
  return textOr(`evaluation.said.${slug(value)}`, value);
}
