// The traces of the chosen workers, as they become ready.
import { computed, shallowRef, watch } from "vue";
import { address, ApiError, asError, get, type Query, type Worker } from "../../api";
import { baseQuery, baseRun, baseStep, baseWorker, comparedStamp, run, span, step, useLatest } from "../../state";
import { BASE, pairOf, shiftOf } from "../../compare/step-alignment";
import type { Meta } from "./model";
import { epochDifference, Source, type SourceId } from "./trace-source";
import type { State } from "./state";

const RETRY_MS = 1000;
const AT_ONCE = 4;

function queryOf(one: Worker): Query | null {
  const chosen = one.spans.find((each) => each.id === span.value?.id) ?? one.spans[0];
  return run.value && chosen ? { run: run.value.id, worker: one.id, span: chosen.id } : null;
}

/** Waits for a file that is still being read. */
async function metaOf(query: Query, signal: AbortSignal): Promise<Meta | null> {
  for (;;) {
    try {
      return (await get<Meta>(address("timeline/meta", { ...query, minimap: 0 }), { signal }))?.body ?? null;
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status !== 503 && error.status !== 0)) throw error;
      await new Promise((resume) => setTimeout(resume, RETRY_MS));
      if (signal.aborted) return null;
    }
  }
}

export function useSources(state: State, arrived: () => void) {
  const sources = shallowRef<Source[]>([]);
  const error = shallowRef<ApiError | null>(null);
  const pending = shallowRef(0);
  const kept = new Map<string, Source>();
  const nextSignal = useLatest();

  // The only worker of a run needs no name.
  const baseName = computed(() =>
    [baseRun.value?.name || baseRun.value?.id, (baseRun.value?.workers.length ?? 0) > 1 ? baseWorker.value?.name : ""]
      .filter(Boolean)
      .join(" · "),
  );
  const ids = computed<SourceId[]>(() => {
    const own = state.shown.value.flatMap((place) => {
      const one = state.workers.value[place];
      const query = one && queryOf(one);
      return one && query ? [{ worker: place, name: one.name || one.id, query }] : [];
    });
    const base = baseQuery.value;
    return base
      ? [
          ...own,
          {
            worker: BASE,
            name: baseName.value,
            query: { run: base["run"], worker: base["worker"], span: base["span"] },
          },
        ]
      : own;
  });

  async function load(wanted: SourceId[]): Promise<void> {
    const signal = nextSignal();
    const key = (id: SourceId) => `${JSON.stringify(id)} ${comparedStamp.value}`;
    const missing = wanted.filter((id) => !kept.has(key(id)));
    const show = () => (sources.value = wanted.flatMap((id) => kept.get(key(id)) ?? []));
    error.value = null;
    pending.value = missing.length;
    if (missing.length < wanted.length || wanted.length === 0) show();
    const fetchNext = async (): Promise<void> => {
      for (let id = missing.shift(); id; id = missing.shift()) {
        try {
          const meta = await metaOf(id.query, signal);
          if (meta) kept.set(key(id), new Source(id, meta, arrived));
        } catch (failure) {
          if (signal.aborted) return;
          error.value = asError(failure);
        }
        if (signal.aborted) return;
        pending.value -= 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, fetchNext));
    if (!signal.aborted) show();
  }

  watch([() => JSON.stringify(ids.value), comparedStamp], () => void load([...ids.value]), { immediate: true });

  /** The worker whose steps and profile are shown. */
  const main = computed(
    () =>
      sources.value.find((one) => one.id.worker === state.own.value) ??
      sources.value.find((one) => one.id.worker !== BASE) ??
      null,
  );
  const base = computed(() => sources.value.find((one) => one.id.worker === BASE) ?? null);
  /** The steps of both runs that begin together. */
  const pair = computed(() =>
    main.value && base.value
      ? pairOf(main.value.meta.steps, base.value.meta.steps, state.way.value, step.value, baseStep.value)
      : null,
  );

  /** What steps, clocks and hand add up to, ns; the selected worker's first event is time 0. Clocks of two runs say nothing of each other. */
  function offsetOf(one: Source): number {
    const byHand = state.offsets.value.get(one.id.worker) ?? 0;
    const ofMain = main.value && one !== main.value ? (state.offsets.value.get(main.value.id.worker) ?? 0) : 0;
    if (one === base.value) return ofMain + shiftOf(main.value?.meta.steps ?? [], one.meta.steps, pair.value) + byHand;
    return epochDifference(main.value?.meta.epoch_ns ?? null, one.meta.epoch_ns) + byHand;
  }

  return { sources, main, base, pair, error, pending, offsetOf };
}
