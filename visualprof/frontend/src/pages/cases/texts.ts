// What the server's words about cases are called here.
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

/** The locale's word in a column; anything else as it is. */
export function valueText(column: string, value: string): string {
  if (column === "framework") return textOr(`framework.${value}`, value);
  return VOCABULARIES[column] ? textOr(`cases.${VOCABULARIES[column]}.${slug(value)}`, value) : value;
}

/** Four digits of an accuracy: two decimals would hide what a compiler loses. */
export function formatPrecise(column: string, value: Cell | undefined): Cell | undefined {
  return typeof value === "number" && ACCURACIES.includes(column) ? String(Number(value.toPrecision(4))) : value;
}

/** A sentence of the server's in the page's language; what an exception of the case says stays as it is. */
export function warningText(text: string): string {
  return /\b[A-Z]\w*(Error|Exception|Warning): /.test(text) ? displayText(text) : translateMessage(displayText(text));
}
