// A GET request that follows its address: a newer request aborts the older one; while the server parses the file, it is
// repeated.
import { useTimeoutFn } from "@vueuse/core";
import { ref, shallowRef, watch, type Ref, type ShallowRef } from "vue";
import { asError, get, type ApiError } from "../api/client";
import { useLatestSignal } from "./abort-signals";

const RETRY_MS = 1000;
const MAX_RETRY_MS = 5000;

export interface Resource<T> {
  /** The last answer. It stays while the next one is loading, so that pages do not flicker. */
  data: ShallowRef<T | null>;
  error: ShallowRef<ApiError | null>;
  loading: Ref<boolean>;
  /** The server's message while it reads the file. */
  waiting: ShallowRef<ApiError | null>;
}

function retryMs(error: ApiError): number | null {
  if (error.status === 0) return RETRY_MS;
  return error.status === 503 ? Math.min((error.retryAfterS ?? 1) * 1000, MAX_RETRY_MS) : null;
}

/** Request `url()` whenever it or `stamp()` changes. A null address requests nothing. */
export function useResource<T>(url: () => string | null, stamp: () => unknown): Resource<T> {
  const data = shallowRef<T | null>(null);
  const error = shallowRef<ApiError | null>(null);
  const loading = ref(false);
  const waiting = shallowRef<ApiError | null>(null);
  const nextSignal = useLatestSignal();
  let waitMs: number | null = null;
  let requestedUrl: string | null = null;
  const { start, stop } = useTimeoutFn(
    () => void load(),
    () => waitMs ?? RETRY_MS,
    { immediate: false },
  );

  async function load(): Promise<void> {
    stop();
    const signal = nextSignal();
    const target = url();
    loading.value = target !== null;
    if (target !== requestedUrl) waiting.value = null;
    requestedUrl = target;
    if (target === null) return;
    try {
      data.value = (await get<T>(target, { signal }))?.body ?? null;
      error.value = waiting.value = null;
    } catch (exception) {
      if (signal.aborted) return;
      const failure = asError(exception);
      waitMs = retryMs(failure);
      waiting.value = failure.status === 503 ? failure : null;
      if (waitMs !== null) return start();
      data.value = null;
      error.value = failure;
    }
    if (!signal.aborted) loading.value = false;
  }

  watch([url, stamp], load, { immediate: true });
  return { data, error, loading, waiting };
}
