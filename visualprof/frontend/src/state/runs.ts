// What the log directories hold, polled: every other piece of the page derives from this list.
import { computed, ref, shallowRef } from "vue";
import { address, get } from "../api/client";
import type { Run, RunsAnswer, SkippedFile, Span } from "../api/model";

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

let etag: string | null = null;
let timer = 0;

async function poll(): Promise<void> {
  clearTimeout(timer);
  try {
    const fresh = await get<RunsAnswer>(address("runs"), { etag });
    reachable.value = true;
    if (fresh) {
      etag = fresh.etag;
      answer.value = fresh.body;
    }
  } catch {
    reachable.value = false;
  }
  clearTimeout(timer);
  if (!document.hidden) timer = window.setTimeout(() => void poll(), busy.value || !reachable.value ? BUSY_MS : CALM_MS);
}

export function start_polling(): void {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void poll();
  });
  void poll();
}
