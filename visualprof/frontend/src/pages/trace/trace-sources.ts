// The traces of the chosen workers, as they are loaded.
import { computed, shallowRef, watch } from "vue";
import { address, ApiError, asError, get, type Query, type Worker } from "../../api";
import {
  baseQuery,
  baseRun,
  baseStep,
  baseWorker,
  comparedStamp,
  run,
  span,
  step,
  stepRange,
  useLatestSignal,
} from "../../state";
import { BASE, pairSteps, alignmentShift } from "../../compare/step-alignment";
import type { Meta } from "./model";
import { epochDifference, TraceSource, type TraceSourceId } from "./trace-source";
import type { TimelineState } from "./state";

const RETRY_MS = 1000;
const MAX_PARALLEL = 4;

function workerQuery(owner: Worker): Query | null {
  const chosen = owner.spans.find((candidate) => candidate.id === span.value?.id) ?? owner.spans[0];
  return run.value && chosen
    ? { run: run.value.id, worker: owner.id, span: chosen.id, step_range: stepRange.value }
    : null;
}

/**
 * Load the metadata; wait while the server reads the file. The minimap and the counters need passes over all events and
 * are loaded later, unless the address refers to rows that may be counters, or to what is below them.
 */
async function fetchMeta(id: Query, withCounters: boolean, signal: AbortSignal): Promise<Meta | null> {
  const query = { ...id, minimap: 0, counters: withCounters ? null : 0 };
  for (;;) {
    try {
      return (await get<Meta>(address("timeline/meta", query), { signal }))?.body ?? null;
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status !== 503 && error.status !== 0)) throw error;
      await new Promise((resume) => setTimeout(resume, RETRY_MS));
      if (signal.aborted) return null;
    }
  }
}

export function useTraceSources(state: TimelineState, arrived: () => void) {
  const sources = shallowRef<TraceSource[]>([]);
  const error = shallowRef<ApiError | null>(null);
  const pending = shallowRef(0);
  const loadedSources = new Map<string, TraceSource>();
  const nextSignal = useLatestSignal();

  // The only worker of a run needs no name.
  const baseName = computed(() =>
    [baseRun.value?.name || baseRun.value?.id, (baseRun.value?.workers.length ?? 0) > 1 ? baseWorker.value?.name : ""]
      .filter(Boolean)
      .join(" · "),
  );
  const ids = computed<TraceSourceId[]>(() => {
    const current = state.shown.value.flatMap((index) => {
      const owner = state.workers.value[index];
      const query = owner && workerQuery(owner);
      return owner && query ? [{ worker: index, name: owner.name || owner.id, query }] : [];
    });
    const base = baseQuery.value;
    return base
      ? [
          ...current,
          {
            worker: BASE,
            name: baseName.value,
            query: { run: base["run"], worker: base["worker"], span: base["span"], step_range: base["step_range"] },
          },
        ]
      : current;
  });

  async function load(wantedIds: TraceSourceId[]): Promise<void> {
    const signal = nextSignal();
    const key = (id: TraceSourceId) => `${JSON.stringify(id)} ${comparedStamp.value}`;
    const missing = wantedIds.filter((id) => !loadedSources.has(key(id)));
    const withCounters = state.pins.value.length > 0 || state.scroll.value > 0;
    const show = () => (sources.value = wantedIds.flatMap((id) => loadedSources.get(key(id)) ?? []));
    error.value = null;
    pending.value = missing.length;
    if (missing.length < wantedIds.length || wantedIds.length === 0) show();
    const fetchNext = async (): Promise<void> => {
      for (let id = missing.shift(); id; id = missing.shift()) {
        try {
          const meta = await fetchMeta(id.query, withCounters, signal);
          if (meta) loadedSources.set(key(id), new TraceSource(id, meta, arrived));
        } catch (failure) {
          if (signal.aborted) return;
          error.value = asError(failure);
        }
        if (signal.aborted) return;
        pending.value -= 1;
      }
    };
    await Promise.all(Array.from({ length: MAX_PARALLEL }, fetchNext));
    if (!signal.aborted) show();
  }

  watch([() => JSON.stringify(ids.value), comparedStamp], () => void load([...ids.value]), { immediate: true });

  /** The worker whose steps and profile are shown. */
  const main = computed(
    () =>
      sources.value.find((source) => source.id.worker === state.own.value) ??
      sources.value.find((source) => source.id.worker !== BASE) ??
      null,
  );
  const base = computed(() => sources.value.find((source) => source.id.worker === BASE) ?? null);
  /** The steps of both runs that start together. */
  const pair = computed(() =>
    main.value && base.value
      ? pairSteps(main.value.meta.steps, base.value.meta.steps, state.way.value, step.value, baseStep.value)
      : null,
  );

  /**
   * Return the sum of the offsets from steps, clocks and manual moves, in ns. The selected worker's first event is time
   * 0. Clocks of two runs are not comparable.
   */
  function sourceOffset(source: TraceSource): number {
    const byHand = state.offsets.value.get(source.id.worker) ?? 0;
    const ofMain = main.value && source !== main.value ? (state.offsets.value.get(main.value.id.worker) ?? 0) : 0;
    if (source === base.value)
      return ofMain + alignmentShift(main.value?.meta.steps ?? [], source.meta.steps, pair.value) + byHand;
    return epochDifference(main.value?.meta.epoch_ns ?? null, source.meta.epoch_ns) + byHand;
  }

  return { sources, main, base, pair, error, pending, offsetOf: sourceOffset };
}
