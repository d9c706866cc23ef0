// Texts for the server's vocabulary of cases.
import type { Cell } from "../../api/model";
import { displayText } from "../../lib/text";
import { translateMessage, textOr } from "../../locales";

const slug = (text: string) => text.toLowerCase().replace(/[^a-z0-9]+/g, "_");
const VOCABULARIES: Record<string, string> = {
  state: "state",
  verdict: "verdict",
  name: "step",
  origin: "origin",
  of: "passes",
  peak_source: "source",
};
const ACCURACIES = ["accuracy", "accuracy_difference", "tolerance"];

/** Return the locale's text for a value of a column, or the value itself. */
export function valueText(column: string, value: string): string {
  if (column === "framework") return textOr(`framework.${value}`, value);
  return VOCABULARIES[column] ? textOr(`cases.${VOCABULARIES[column]}.${slug(value)}`, value) : value;
}

/** Format an accuracy with four digits: two decimals would hide the loss of a compiler. */
export function formatPrecise(column: string, value: Cell | undefined): Cell | undefined {
  return typeof value === "number" && ACCURACIES.includes(column) ? String(Number(value.toPrecision(4))) : value;
}

/** Translate a warning of the server. Messages of the case's own exceptions stay unchanged. */
export function warningText(text: string): string {
  return /\b[A-Z]\w*(Error|Exception|Warning): /.test(text) ? displayText(text) : translateMessage(displayText(text));
}
