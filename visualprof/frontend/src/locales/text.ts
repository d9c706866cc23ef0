// Lookups with a fallback: a server may know columns, views or findings that this page has no words for yet.
import { i18n } from "./index";

function first_known(keys: readonly string[]): string | null {
  const { te, t, fallbackLocale } = i18n.global;
  const known = keys.find((key) => te(key) || te(key, String(fallbackLocale.value)));
  return known === undefined ? null : t(known);
}

export function text_or(key: string, fallback: string): string {
  return first_known([key]) ?? fallback;
}

/** The heading of a column; `scope` is the table it stands in, which may name it more precisely. */
export function column_label(column: string, scope = ""): string {
  return first_known([`column.in_${scope}.${column}`, `column.${column}`]) ?? column.replace(/_(ns|bytes|ratio)$/, "").replaceAll("_", " ");
}

/** What a number means, or nothing. */
export function definition(column: string, scope = ""): string {
  return first_known([`metric.in_${scope}.${column}`, `metric.${column}`]) ?? "";
}

/** The text of a chart's token. Parts of a step and stages are categories by other names; "|device" adds the side. */
export function chart_text(key: string): string {
  const [name = key, side] = key.split("|");
  if (side !== undefined) return i18n.global.t("chart.of_side", { name: chart_text(name), side: word(side) });
  const plain = key.replace(/^(part|stage)\./, "category.");
  return text_or(plain, plain.replace(/^.*\./, ""));
}

/** The locale's word for one of the server's closed vocabulary (categories, stages), else the word itself. */
export function word(value: string): string {
  return text_or(`category.${value}`, value);
}
