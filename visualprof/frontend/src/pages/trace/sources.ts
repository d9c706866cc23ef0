// The traces of the chosen workers, as they become ready.
import { computed, shallowRef, watch } from "vue";
import { address, ApiError, as_error, get, type Query, type Worker } from "../../api";
import { file_stamp, run, span, useLatest } from "../../state";
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

  const ids = computed<SourceId[]>(() =>
    state.shown.value.flatMap((place) => {
      const one = state.workers.value[place];
      const query = one && query_of(one);
      return one && query ? [{ worker: place, name: one.name || one.id, query }] : [];
    }),
  );

  async function load(wanted: SourceId[]): Promise<void> {
    const signal = next_signal();
    const key = (id: SourceId) => `${JSON.stringify(id.query)} ${file_stamp.value}`;
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

  watch([() => JSON.stringify(ids.value), file_stamp], () => void load([...ids.value]), { immediate: true });

  const base_epoch = computed(() => (sources.value.find((one) => one.id.worker === state.own.value) ?? sources.value[0])?.meta.epoch_ns ?? null);

  /** What clocks and hand add up to, ns; the selected worker's first event is time 0. */
  function offset_of(one: Source): number {
    return epoch_difference(base_epoch.value, one.meta.epoch_ns) + (state.offsets.value.get(one.id.worker) ?? 0);
  }

  return { sources, error, pending, offset_of };
}
