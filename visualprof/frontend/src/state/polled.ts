// One GET that is asked again and again while the page is in sight; an ETag spares what did not change.
import { onScopeDispose, ref, shallowRef, watch, type Ref, type ShallowRef } from "vue";
import { as_error, get, type ApiError } from "../api/client";

export interface Polled<T> {
  data: ShallowRef<T | null>;
  error: ShallowRef<ApiError | null>;
  /** When an answer last came, whether it was new or not. */
  fresh_ms: Ref<number>;
  /** Asks now, for what the user did himself must be seen at once. */
  refresh: () => Promise<void>;
  /** Takes an answer that came by another way. */
  take: (answer: T) => void;
}

/** Asks `url()` every `pause_ms(last answer)`; a null address asks nothing and forgets. */
export function usePolled<T>(url: () => string | null, pause_ms: (answer: T | null) => number): Polled<T> {
  const data: ShallowRef<T | null> = shallowRef(null);
  const error: ShallowRef<ApiError | null> = shallowRef(null);
  const fresh_ms = ref(0);
  let etag: string | null = null;
  let control = new AbortController();
  let timer = 0;

  async function ask(): Promise<void> {
    clearTimeout(timer);
    control.abort();
    control = new AbortController();
    const { signal } = control;
    const target = url();
    if (target === null) return;
    try {
      const answer = await get<T>(target, { etag, signal });
      if (answer) {
        etag = answer.etag;
        data.value = answer.body;
      }
      error.value = null;
      fresh_ms.value = Date.now();
    } catch (failure) {
      if (signal.aborted) return;
      error.value = as_error(failure);
    }
    if (!signal.aborted && !document.hidden) timer = window.setTimeout(() => void ask(), pause_ms(data.value));
  }

  function on_visible(): void {
    if (!document.hidden) void ask();
  }

  function take(answer: T): void {
    etag = null;
    data.value = answer;
  }

  watch(url, () => {
    etag = null;
    data.value = null;
    void ask();
  }, { immediate: true });
  document.addEventListener("visibilitychange", on_visible);
  onScopeDispose(() => {
    control.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", on_visible);
  });
  return { data, error, fresh_ms, refresh: ask, take };
}
