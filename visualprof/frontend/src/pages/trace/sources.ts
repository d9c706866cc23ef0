// The traces of the chosen workers, as they become ready.
import { computed, shallowRef, watch } from "vue";
import { address, ApiError, as_error, get, type Query, type Worker } from "../../api";
import { base_query, base_run, base_step, base_worker, compared_stamp, run, span, step, useLatest } from "../../state";
import { BASE, pair_of, shift_of } from "../../compare/steps";
import type { Meta } from "./model";
import { epoch_difference, Source, type SourceId } from "./source";
import type { State } from "./state";

const RETRY_MS = 1000;
const AT_ONCE = 4;

function query_of(one: Worker): Query | null {
  const chosen = one.spans.find((each) => each.id === span.value?.id) ?? one.spans[0];
  return run.value && chosen ? { run: run.value.id, worker: one.id, span: chosen.id } : null;
}

/** Waits for a file that is still being read. */
async function meta_of(query: Query, signal: AbortSignal): Promise<Meta | null> {
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
  const next_signal = useLatest();

  // The only worker of a run needs no name.
  const base_name = computed(() =>
    [
      base_run.value?.name || base_run.value?.id,
      (base_run.value?.workers.length ?? 0) > 1 ? base_worker.value?.name : "",
    ]
      .filter(Boolean)
      .join(" · "),
  );
  const ids = computed<SourceId[]>(() => {
    const own = state.shown.value.flatMap((place) => {
      const one = state.workers.value[place];
      const query = one && query_of(one);
      return one && query ? [{ worker: place, name: one.name || one.id, query }] : [];
    });
    const base = base_query.value;
    return base
      ? [
          ...own,
          {
            worker: BASE,
            name: base_name.value,
            query: { run: base["run"], worker: base["worker"], span: base["span"] },
          },
        ]
      : own;
  });

  async function load(wanted: SourceId[]): Promise<void> {
    const signal = next_signal();
    const key = (id: SourceId) => `${JSON.stringify(id)} ${compared_stamp.value}`;
    const missing = wanted.filter((id) => !kept.has(key(id)));
    const show = () => (sources.value = wanted.flatMap((id) => kept.get(key(id)) ?? []));
    error.value = null;
    pending.value = missing.length;
    if (missing.length < wanted.length || wanted.length === 0) show();
    const fetch_next = async (): Promise<void> => {
      for (let id = missing.shift(); id; id = missing.shift()) {
        try {
          const meta = await meta_of(id.query, signal);
          if (meta) kept.set(key(id), new Source(id, meta, arrived));
        } catch (failure) {
          if (signal.aborted) return;
          error.value = as_error(failure);
        }
        if (signal.aborted) return;
        pending.value -= 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, fetch_next));
    if (!signal.aborted) show();
  }

  watch([() => JSON.stringify(ids.value), compared_stamp], () => void load([...ids.value]), { immediate: true });

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
      ? pair_of(main.value.meta.steps, base.value.meta.steps, state.way.value, step.value, base_step.value)
      : null,
  );

  /** What steps, clocks and hand add up to, ns; the selected worker's first event is time 0. Clocks of two runs say nothing of each other. */
  function offset_of(one: Source): number {
    const by_hand = state.offsets.value.get(one.id.worker) ?? 0;
    const of_main = main.value && one !== main.value ? (state.offsets.value.get(main.value.id.worker) ?? 0) : 0;
    if (one === base.value)
      return of_main + shift_of(main.value?.meta.steps ?? [], one.meta.steps, pair.value) + by_hand;
    return epoch_difference(main.value?.meta.epoch_ns ?? null, one.meta.epoch_ns) + by_hand;
  }

  return { sources, main, base, pair, error, pending, offset_of };
}
