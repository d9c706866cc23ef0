// Groups ranks by state, so that a thousand ranks take a few lines.
import type { LiveRecording } from "../api/model";

const FINISHED_SHOWN_NS = 10 * 60e9;
/** In the order of a recording; errors come last. */
const STATE_ORDER = [
  "asked",
  "armed",
  "recording",
  "writing",
  "done",
  "late",
  "refused",
  "failed",
  "hung",
  "silent",
  "ended",
];

export interface Group<T> {
  state: string;
  members: T[];
}

/** Group items by state; items without a state are omitted. */
export function groupByState<T>(items: readonly T[], stateOf: (item: T) => string | null): Group<T>[] {
  const byState = new Map<string, T[]>();
  for (const item of items) {
    const state = stateOf(item);
    if (state !== null) byState.set(state, [...(byState.get(state) ?? []), item]);
  }
  return [...byState]
    .map(([state, members]) => ({ state, members }))
    .sort((a, b) => STATE_ORDER.indexOf(a.state) - STATE_ORDER.indexOf(b.state));
}

/** Whether a recording is still shown: while it is running, and for ten minutes after. */
export function isShownRecording(recording: LiveRecording, live: boolean, nowMs = Date.now()): boolean {
  return (!recording.over && live) || nowMs * 1e6 - recording.asked_ns < FINISHED_SHOWN_NS;
}
