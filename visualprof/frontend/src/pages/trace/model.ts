// What the server says about a timeline (docs/http-api.md, "timeline"). Times are ns since the trace's first event.
import type { Cell, Json, Schemas } from "../../api/model";

export type Track = Schemas["TimelineTrack"];
export type Counter = Schemas["TimelineCounter"];
/** epoch_ns: Unix ns of time 0 as text; null when the file does not say. minimap: empty when not asked for. */
export type Meta = Schemas["TimelineMeta"];
/** Where an event stands. */
export type EventLocation = Schemas["Place"];
export type Link = Schemas["LinkedPlace"];
export type EventDetails = Omit<Schemas["TimelineEvent"], "columns" | "arguments"> & {
  columns: Record<string, Cell>;
  arguments: Json;
};
export type SearchAnswer = Schemas["TimelineHits"];
export type Alignment = Schemas["Alignment"];

/** A stretch of time on the page's axis, ns. */
export interface Range {
  start: number;
  end: number;
}
