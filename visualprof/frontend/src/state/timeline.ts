// Addresses of places on the timeline, for the pages that tell of single events.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { query_value, SELECTION_KEYS } from "./address";
import { run, span, worker } from "./selection";

/** Files that record only memory have no timeline to show. */
export const has_timeline = computed(() => span.value?.views.includes("trace") ?? false);

// An operator and what it calls fit into this much to either side.
const NEAR_NS = 250_000;

function selection(): Record<string, string> {
  return Object.fromEntries(
    SELECTION_KEYS.flatMap((key) => (query_value(key) === null ? [] : [[key, query_value(key) as string]])),
  );
}

/** One event, selected; of the shown worker, or of another of the run; `around_ns` is where to look. */
export function event_location(event: number, worker_id?: string, around_ns?: number): RouteLocationRaw {
  const workers = run.value?.workers ?? [];
  const place = Math.max(
    0,
    workers.findIndex((one) => one.id === (worker_id ?? worker.value?.id)),
  );
  const other = worker_id !== undefined && worker_id !== worker.value?.id;
  const win =
    around_ns === undefined ? {} : { win: `${Math.round(around_ns - NEAR_NS)}~${Math.round(around_ns + NEAR_NS)}` };
  return {
    path: "/trace",
    query: {
      ...selection(),
      ...(other ? { worker: worker_id, span: undefined } : {}),
      sel: `${place}.${event}`,
      ...win,
    },
  };
}

/** A stretch of time, ns since the first event. */
export function window_location(start_ns: number, end_ns: number): RouteLocationRaw {
  return { path: "/trace", query: { ...selection(), win: `${Math.round(start_ns)}~${Math.round(end_ns)}` } };
}

/** The longest event of a name. */
export function longest_location(name: string, where: "host" | "device"): RouteLocationRaw {
  return { path: "/trace", query: { ...selection(), longest: name, where } };
}
