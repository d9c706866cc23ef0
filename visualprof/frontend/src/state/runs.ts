// The content of the log directories, polled. The rest of the web UI derives from this list.
import { computed, effectScope, ref, shallowRef, watch } from "vue";
import {
  address,
  get,
  type ChangesAnswer,
  type Run,
  type RunsAnswer,
  type SkippedFile,
  type Span,
  type SpanState,
} from "../api";
import { queryValue } from "./address";
import { usePolled } from "./polling";

const ACTIVE_POLL_MS = 1000;
const IDLE_POLL_MS = 3000;

const answer = shallowRef<RunsAnswer | null>(null);

/** False while the server does not answer. The page keeps its data and keeps asking. */
export const reachable = ref(true);
export const loaded = computed(() => answer.value !== null);
export const runs = computed<Run[]>(() => answer.value?.runs ?? []);
export const skipped = computed<SkippedFile[]>(() => answer.value?.skipped ?? []);

export function runSpans(run: Run): Span[] {
  return run.workers.flatMap((worker) => worker.spans);
}

export type EmptyState = "data" | "bare";

/** The state of a run without recordings. */
export function emptyState(run: Run): EmptyState {
  return run.data ? "data" : "bare";
}

const BUSY_STATES: ReadonlySet<SpanState> = new Set(["waiting", "parsing", "growing"]);

const busy = computed(() =>
  runs.value.some((run) => run.workers.some((worker) => worker.spans.some((span) => BUSY_STATES.has(span.state)))),
);

/** Merge changes into the known runs. Unchanged runs stay the same objects. */
export function mergeChanges(
  previous: RunsAnswer | null,
  { revision, since, runs, removed, skipped }: ChangesAnswer,
): RunsAnswer {
  const byId = new Map(since === null ? [] : previous?.runs.map((run) => [run.id, run]));
  for (const run of runs) byId.set(run.id, run);
  for (const id of removed) byId.delete(id);
  return { revision, runs: [...byId.values()], skipped: skipped ?? previous?.skipped ?? [] };
}

/** Request the changes since the last answer. Also names the shown run, whose files are read first. */
async function fetchChanges(
  previous: RunsAnswer | null,
  signal: AbortSignal,
): Promise<{ body: RunsAnswer; etag: null } | null> {
  const answered = await get<ChangesAnswer>(
    address("runs/changes", { since: previous?.revision, shown: queryValue("run") }),
    { signal },
  );
  return answered && answered.body.revision !== previous?.revision
    ? { body: mergeChanges(previous, answered.body), etag: null }
    : null;
}

/** Poll while the page is open. The returned function stops polling and clears the data. */
export function startPolling(): () => void {
  const scope = effectScope(true);
  scope.run(() => {
    const pauseMs = () => (busy.value || !reachable.value ? ACTIVE_POLL_MS : IDLE_POLL_MS);
    const { data, error, refresh } = usePolled<RunsAnswer>(
      () => "runs",
      pauseMs,
      (_, { signal }) => fetchChanges(answer.value, signal),
    );
    watch(
      [data, error],
      () => {
        answer.value = data.value;
        reachable.value = error.value === null;
      },
      { flush: "sync" },
    );
    watch(
      () => queryValue("run"),
      () => busy.value && void refresh(),
    );
  });
  return () => {
    scope.stop();
    answer.value = null;
  };
}
