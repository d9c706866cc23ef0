// What the web UI defines: a card, a heading or a column. Cards and headings register here, so that the help lists them.
import { onBeforeUnmount, onMounted, shallowReactive } from "vue";
import type { Kind } from "../api/model";
import type { Column } from "./table/columns";

export interface Subject {
  name: string;
  /** The definition, if the page has it. */
  text?: string;
  /** Its key below `about` in definitions.json otherwise. */
  about?: string;
  /** Column of a table, with its kind and the table's name in the locales. */
  column?: string;
  kind?: Kind;
  scope?: string;
  /** The view that the numbers come from. */
  view?: string;
  table?: string;
  /** Columns that the card shows. */
  columns?: readonly Column[];
}

/** The part of a subject that is the same for all columns of a table. */
export type TableSource = Pick<Subject, "view" | "table" | "scope" | "columns">;

const shown = shallowReactive(new Set<() => Subject>());

/** Return the cards and headings of the page, in the order in which they appeared. */
export function shownSubjects(): Subject[] {
  return [...shown].map((subject) => subject());
}

/** List a card or heading in the help while it is shown. */
export function useSubject(subject: () => Subject): void {
  onMounted(() => shown.add(subject));
  onBeforeUnmount(() => shown.delete(subject));
}

export function columnSubject({ name, label, hint, kind }: Column, { view, table, scope }: TableSource = {}): Subject {
  return { name: label, text: hint, column: name, kind, scope, view, table };
}
