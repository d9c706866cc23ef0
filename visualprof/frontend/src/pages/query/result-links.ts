// Links from the rows of a result to the timeline.
import type { RouteLocationRaw } from "vue-router";
import type { Schemas } from "../../api/model";
import type { TableRow } from "../../components";
import { eventLocation, windowLocation } from "../../state/timeline-links";
import type { Schema } from "./completion";
import { tablesOf } from "./sql";

export type QueryAnswer = Schemas["QueryAnswer"];

/** Columns that name an event in every table, the one that a row is about first. */
const EVENT_COLUMNS = [
  "slice_in",
  "event_id",
  "launch_id",
  "op_id",
  "range_id",
  "module_id",
  "parent_id",
  "arg_set_id",
];

/** Return the column that names the event of a row, or null. `id` does if each table of the statement has events. */
export function eventColumn(answer: QueryAnswer, sql: string, schema: Schema | null): string | null {
  const names = Object.keys(answer.columns);
  const used = tablesOf(sql);
  const tables = (schema?.tables ?? []).filter(({ name }) => used.includes(name));
  if (names.includes("id") && tables.length > 0 && tables.every(({ has_events }) => has_events)) return "id";
  return EVENT_COLUMNS.find((name) => names.includes(name)) ?? null;
}

/** Return where a row leads on the timeline: to its event, else to its time; null if it has neither. */
export function rowLocation(answer: QueryAnswer, column: string | null, row: TableRow): RouteLocationRaw | null {
  const id = column === null ? null : row(column);
  const trace =
    typeof id === "number"
      ? answer.traces.find(({ first_id, events }) => id >= first_id && id < first_id + events)
      : undefined;
  if (typeof id === "number" && trace) return eventLocation(id - trace.first_id, trace.worker);
  const [start, duration] = [row("ts"), row("dur")];
  // The times of several traces count from the first event of all.
  if (answer.traces.length !== 1 || typeof start !== "number" || typeof duration !== "number") return null;
  return windowLocation(start, start + Math.max(duration, 1));
}
