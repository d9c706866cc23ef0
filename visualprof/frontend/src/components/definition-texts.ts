// The texts of definitions, which are loaded when the first one is opened.
import { definition, locale, setLanguage, t, te, textOr } from "../locales";
import type { Subject } from "./definitions";

/** Load the texts of definitions that pages do not need otherwise. */
export function loadDefinitions(): Promise<void> {
  return setLanguage(locale.value, ["definitions", "metrics"]);
}

/** Return the definition in one or two sentences; "" if there is none. */
export function definitionText({ text, about, column, scope }: Subject): string {
  if (text) return text;
  if (about !== undefined && te(`about.${about}`)) return t(`about.${about}`);
  return column === undefined ? "" : definition(column, scope);
}

/** Return the unit of a column, such as "time, in nanoseconds when exported"; "" for names and texts. */
export function unitText({ kind }: Subject): string {
  return kind === undefined ? "" : textOr(`unit.${kind}`, "");
}

/** Return where the numbers come from: the view, its table and its column, as on the command line. */
export function sourceText({ view, table, column }: Subject): string {
  if (view === undefined) return "";
  const parts = [["view", view] as const, ["table", table] as const, ["column", column] as const];
  return parts
    .filter((part): part is readonly ["view" | "table" | "column", string] => Boolean(part[1]))
    .map(([part, id]) => t(`definition.${part}`, { id }))
    .join(t("definition.joint"));
}
