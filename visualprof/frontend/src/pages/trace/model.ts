// The server's answers about a timeline (docs/http-api.md, "timeline"). Times are ns since the trace's first event.
import type { Cell, Json, Schemas } from "../../api/model";

export type Track = Schemas["TimelineTrack"];
export type Counter = Schemas["TimelineCounter"];
/** `epoch_ns`: Unix time of time 0 in ns, as text; null if unknown. `minimap`: empty if not requested. */
export type Meta = Schemas["TimelineMeta"];
/** The location of an event. */
export type EventLocation = Schemas["EventLocation"];
export type Link = Schemas["LinkedEvent"];
export type EventDetails = Omit<Schemas["TimelineEvent"], "columns" | "arguments"> & {
  columns: Record<string, Cell>;
  arguments: Json;
};
export type SearchAnswer = Schemas["TimelineHits"];
export type Alignment = Schemas["Alignment"];

/** A time range on the page's axis, in ns. */
export interface Range {
  start: number;
  end: number;
}
