// The main numbers of runs, requested for a few runs at a time: the visible ones first.
import { useTimeoutFn } from "@vueuse/core";
import { onScopeDispose, shallowReactive, watch } from "vue";
import { address, get, type HeadlinesAnswer, type Run, type RunHeadline } from "../../api";
import { runStamp } from "./rows";

/** The server answers at most 60. */
const MAX_RUNS = 40;
const PAUSE_MS = 150;
const WAIT_MS = 1000;

interface Known {
  stamp: string;
  /** Null if the run has no overview. */
  headline: RunHeadline | null;
}

/** Kept while the page is closed: going back shows the numbers at once. */
const known = shallowReactive(new Map<string, Known>());

/** Return the numbers of a run; undefined if they are not known yet. */
export function headlineOf(run: Run): RunHeadline | null | undefined {
  return known.get(run.id)?.headline;
}

function isAsked(run: Run): boolean {
  const first = run.workers[0]?.spans[0];
  return first?.state === "ready" && known.get(run.id)?.stamp !== runStamp(run);
}

/** Request the numbers of the wanted runs, in their order, until all are known. */
export function useHeadlines(wanted: () => readonly Run[]): void {
  const control = new AbortController();
  let busy = false;
  const { start, stop } = useTimeoutFn(() => void request(), PAUSE_MS, { immediate: false });
  const later = useTimeoutFn(() => void request(), WAIT_MS, { immediate: false });

  async function request(): Promise<void> {
    const asked = wanted().filter(isAsked).slice(0, MAX_RUNS);
    if (busy || asked.length === 0) return;
    busy = true;
    try {
      const ids = asked.map((run) => run.id).join("\n");
      const answer = await get<HeadlinesAnswer>(address("runs/headlines", { runs: ids }), { signal: control.signal });
      const { headlines, waiting } = answer?.body ?? { headlines: {}, waiting: 0 };
      for (const run of asked) {
        const headline = headlines[run.id] ?? null;
        if (headline || waiting === 0) known.set(run.id, { stamp: runStamp(run), headline });
      }
      busy = false;
      if (waiting > 0) later.start();
      else start();
    } catch {
      busy = false;
      if (!control.signal.aborted) later.start();
    }
  }

  watch(wanted, () => start(), { immediate: true });
  onScopeDispose(() => (control.abort(), stop(), later.stop()));
}
