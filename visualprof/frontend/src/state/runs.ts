// What the log directories hold, polled: every other piece of the page derives from this list.
import { computed, effectScope, ref, shallowRef, watch } from "vue";
import { address, type Run, type RunsAnswer, type SkippedFile, type Span } from "../api";
import { usePolled } from "./polled";

const BUSY_MS = 1000;
const CALM_MS = 3000;

const answer = shallowRef<RunsAnswer | null>(null);

/** False while the server does not answer; the page keeps what it has and keeps asking. */
export const reachable = ref(true);
export const loaded = computed(() => answer.value !== null);
export const runs = computed<Run[]>(() => answer.value?.runs ?? []);
export const skipped = computed<SkippedFile[]>(() => answer.value?.skipped ?? []);

export function spans_of(run: Run): Span[] {
  return run.workers.flatMap((worker) => worker.spans);
}

const BUSY_STATES = new Set(["waiting", "parsing", "growing"]);

const busy = computed(() => runs.value.some((run) => spans_of(run).some((span) => BUSY_STATES.has(span.state))));

/** For as long as the page is open. */
export function start_polling(): void {
  effectScope(true).run(() => {
    const { data, error } = usePolled<RunsAnswer>(() => address("runs"), () => (busy.value || !reachable.value ? BUSY_MS : CALM_MS));
    watch([data, error], () => {
      answer.value = data.value;
      reachable.value = error.value === null;
    }, { flush: "sync" });
  });
}
