// What the server says about a timeline (docs/http-api.md, "timeline"). Times are ns since the trace's first event.
import type { Cell, Json } from "../api/model";

export interface Track {
  id: number;
  kind: "thread" | "stream" | "gpu_annotation";
  name: string;
  process: string;
  pid: string;
  tid: string;
  device: number | null;
  stream: number | null;
  lanes: number;
  events: number;
  group: number;
  group_lane: number;
}

export interface Counter {
  id: number;
  name: string;
  process: string;
  samples: number;
  min: number;
  max: number;
}

export interface StepMark {
  name: string;
  start_ns: number;
  duration_ns: number;
}

export interface Meta {
  version: string;
  duration_ns: number;
  /** Unix ns of time 0 as text; null when the file does not say. */
  epoch_ns: string | null;
  tile_buckets: number;
  categories: string[];
  strings: number;
  tracks: Track[];
  counters: Counter[];
  steps: StepMark[];
  /** Empty when not asked for. */
  minimap: Record<string, number[]>;
  warnings: string[];
}

/** Where an event stands. */
export interface Place {
  event: number;
  name: string;
  category: string;
  track: number;
  lane: number;
  start_ns: number;
  duration_ns: number;
}

export interface Link extends Place {
  kind: string;
  direction: "to" | "from";
}

export interface EventDetails extends Place {
  self_ns: number;
  step: string | null;
  correlation: number | null;
  columns: Record<string, Cell>;
  bandwidth_bytes_per_s: number | null;
  call_stack: Cell;
  arguments: Json;
  parent: Place | null;
  links: Link[];
}

export interface SearchAnswer {
  total: number;
  events: Place[];
  ticks: number[];
}

export interface Alignment {
  worker: string;
  clock_offset_ns: number | null;
  collective_residual_ns: number | null;
  collectives: number;
}

/** A stretch of time on the page's axis, ns. */
export interface Range {
  start: number;
  end: number;
}
