// One GET that follows its address: newer requests abort older ones, a file that is still parsed is waited for.
import { onScopeDispose, ref, shallowRef, watch, type Ref, type ShallowRef } from "vue";
import { ApiError, get } from "../api/client";

const RETRY_MS = 1000;
const LONGEST_RETRY_MS = 5000;

export interface Resource<T> {
  /** The last answer; it stays while the next one is on its way, so that pages do not flicker. */
  data: ShallowRef<T | null>;
  error: ShallowRef<ApiError | null>;
  loading: Ref<boolean>;
}

function waits(error: ApiError): number | null {
  if (error.status === 0) return RETRY_MS;
  if (error.status !== 503) return null;
  return Math.min((error.retryAfter_s ?? 1) * 1000, LONGEST_RETRY_MS);
}

/** Fetches `url()` whenever it or `stamp()` changes; a null address fetches nothing. */
export function useResource<T>(url: () => string | null, stamp: () => unknown): Resource<T> {
  const data: ShallowRef<T | null> = shallowRef(null);
  const error: ShallowRef<ApiError | null> = shallowRef(null);
  const loading = ref(false);
  let control = new AbortController();
  let timer = 0;

  async function load(target: string): Promise<void> {
    const { signal } = control;
    loading.value = true;
    try {
      const answer = await get<T>(target, { signal });
      data.value = answer?.body ?? null;
      error.value = null;
    } catch (failure) {
      if (signal.aborted) return;
      const known = failure instanceof ApiError ? failure : new ApiError(0, String(failure));
      const pause = waits(known);
      if (pause !== null) {
        timer = window.setTimeout(() => void load(target), pause);
        return;
      }
      data.value = null;
      error.value = known;
    }
    loading.value = false;
  }

  function stop(): void {
    control.abort();
    clearTimeout(timer);
  }

  watch(
    [url, stamp],
    ([target]) => {
      stop();
      control = new AbortController();
      loading.value = false;
      if (target !== null) void load(target);
    },
    { immediate: true },
  );
  onScopeDispose(stop);
  return { data, error, loading };
}
