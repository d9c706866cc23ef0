// Links to locations on the timeline, for pages that show single events.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import type { JoinedRecording } from "../api";
import { queryValue, SELECTION_KEYS } from "./address";
import { run, span, worker } from "./selection";

/** Files that record only memory have no timeline. */
export const hasTimeline = computed(() => span.value?.views.includes("trace") ?? false);

// An operator and its calls fit into this margin on either side.
const MARGIN_NS = 250_000;
// The area that is marked around a point in time.
const POINT_MARGIN_NS = 10_000;

function selection(): Record<string, string> {
  return Object.fromEntries(
    SELECTION_KEYS.flatMap((key) => (queryValue(key) === null ? [] : [[key, queryValue(key) as string]])),
  );
}

/**
 * Return a link that selects an event of the shown worker, or of another worker of the run. `aroundNs`: the time to
 * show.
 */
export function eventLocation(event: number, workerId?: string, aroundNs?: number): RouteLocationRaw {
  const workers = run.value?.workers ?? [];
  const index = Math.max(
    0,
    workers.findIndex((candidate) => candidate.id === (workerId ?? worker.value?.id)),
  );
  const other = workerId !== undefined && workerId !== worker.value?.id;
  const win =
    aroundNs === undefined ? {} : { win: `${Math.round(aroundNs - MARGIN_NS)}~${Math.round(aroundNs + MARGIN_NS)}` };
  return {
    path: "/trace",
    query: {
      ...selection(),
      ...(other ? { worker: workerId, span: undefined } : {}),
      sel: `${index}.${event}`,
      ...win,
    },
  };
}

/** Return a link to a time range, in ns since the first event. */
export function windowLocation(startNs: number, endNs: number): RouteLocationRaw {
  return { path: "/trace", query: { ...selection(), win: `${Math.round(startNs)}~${Math.round(endNs)}` } };
}

/** Return a link to a time of a recording of another run, in ns since its first event; null if it is not listed. */
export function recordingLocation(recording: JoinedRecording, ns: number): RouteLocationRaw | null {
  if (recording.run === null || recording.worker === null || recording.span === null) return null;
  const { run, worker, span } = recording;
  const range = `${Math.max(0, Math.round(ns - POINT_MARGIN_NS))}~${Math.round(ns + POINT_MARGIN_NS)}`;
  return { path: "/trace", query: { run, worker, span, at_span: range } };
}

/** Return a link to the longest event of a name. */
export function longestLocation(name: string, where: "host" | "device"): RouteLocationRaw {
  return { path: "/trace", query: { ...selection(), longest: name, where } };
}
