// Runs with live processes, polled while there are any; and the recording that this page requested, which opens
// automatically.
import { computed, effectScope, shallowRef, watch } from "vue";
import {
  address,
  send,
  type LiveAnswer,
  type LiveProcess,
  type LiveRecording,
  type LiveRun,
  type NewRecording,
  type Run,
  type Span,
} from "../api";
import { patchQuery, queryValue } from "./address";
import { usePolled } from "./polling";
import { runs } from "./runs";
import { worker } from "./selection";

const ACTIVE_POLL_MS = 1000;
const IDLE_POLL_MS = 10_000;

const answer = shallowRef<LiveAnswer | null>(null);
const awaited = shallowRef<{ run: string; id: string } | null>(null);
let poll: () => Promise<void> = async () => undefined;

/** False until the first answer. */
export const liveAnswer = computed(() => answer.value !== null);

/** By run. */
export const liveRuns = computed<ReadonlyMap<string, LiveRun>>(
  () => new Map(answer.value?.runs.map((liveRun) => [liveRun.run, liveRun])),
);

export const isPresent = ({ state }: LiveProcess) => state !== "ended" && state !== "silent";

export function isLive(run: string): boolean {
  return liveRuns.value.get(run)?.processes.some(isPresent) ?? false;
}

/** Return the result of a recording: of the selected worker or, without one, of the first. */
export function recordedSpan(
  run: Run,
  recording: LiveRecording,
  preferred: string | null,
): { worker: string; span: Span } | null {
  const files = new Set(recording.workers.map((recorded) => recorded.file));
  const candidates = run.workers.flatMap((candidate) =>
    candidate.spans.filter((span) => files.has(span.file)).map((span) => ({ worker: candidate.id, span })),
  );
  return candidates.find((candidate) => candidate.worker === preferred) ?? candidates[0] ?? null;
}

/** A user who has moved on meanwhile is not redirected. */
function openFinishedRecording(): void {
  const { run: id, id: recordingId } = awaited.value ?? {};
  const recording = id === undefined ? null : (liveRuns.value.get(id)?.recording ?? null);
  if (id === undefined || queryValue("run") !== id || (recording && recording.id !== recordingId)) {
    awaited.value = null;
    return;
  }
  const run = runs.value.find((candidate) => candidate.id === id);
  if (!run || !recording?.over) return;
  const recordedSpans = recordedSpan(run, recording, worker.value?.id ?? null);
  if (!recordedSpans && recording.workers.some((recorded) => recorded.file)) return; // not listed yet
  if (recordedSpans && ["waiting", "parsing"].includes(recordedSpans.span.state)) return;
  awaited.value = null;
  if (recordedSpans) patchQuery({ worker: recordedSpans.worker, span: recordedSpans.span.id, step: null }, true);
}

/** Poll while the page is open. */
export function useLiveRuns(): void {
  effectScope(true).run(() => {
    const { data, refresh } = usePolled<LiveAnswer>(
      () => (runs.value.some((candidate) => candidate.live) ? address("live") : null),
      (now) => (now?.runs.some((candidate) => isLive(candidate.run)) ? ACTIVE_POLL_MS : IDLE_POLL_MS),
    );
    poll = refresh;
    watch(data, (now) => (answer.value = now), { flush: "sync" });
    watch([data, runs], () => awaited.value && openFinishedRecording());
  });
}

/** Throws `ApiError`. */
export async function startRecording(wish: NewRecording): Promise<void> {
  const newRecording = await send<LiveRecording>("POST", address("live/record"), wish);
  awaited.value = { run: wish.run, id: newRecording.id };
  await poll();
}
