// A GET request that is repeated while the page is visible; an ETag avoids unchanged answers.
import { useDocumentVisibility, useTimeoutFn } from "@vueuse/core";
import { shallowRef, watch } from "vue";
import { asError, get, type Answer, type ApiError } from "../api/client";
import { useLatestSignal } from "./abort-signals";

type Fetch<T> = (url: string, options: { etag: string | null; signal: AbortSignal }) => Promise<Answer<T> | null>;

/**
 * Request `url()` every `pauseMs(last answer)`. A null address requests nothing and clears the data. `refresh` requests
 * immediately, to show the effect of a user's action; `setAnswer` sets an answer from elsewhere. `ask` returns null if
 * nothing has changed.
 */
export function usePolled<T>(url: () => string | null, pauseMs: (answer: T | null) => number, ask: Fetch<T> = get) {
  const data = shallowRef<T | null>(null);
  const error = shallowRef<ApiError | null>(null);
  const visibility = useDocumentVisibility();
  const nextSignal = useLatestSignal();
  const { start, stop } = useTimeoutFn(
    () => void refresh(),
    () => pauseMs(data.value),
    { immediate: false },
  );
  let etag: string | null = null;

  async function refresh(): Promise<void> {
    stop();
    const signal = nextSignal();
    const target = url();
    if (target === null) return;
    try {
      const answer = await ask(target, { etag, signal });
      if (answer) [etag, data.value] = [answer.etag, answer.body];
      error.value = null;
    } catch (failure) {
      if (!signal.aborted) error.value = asError(failure);
    }
    if (!signal.aborted && visibility.value === "visible") start();
  }

  function setAnswer(answer: T | null): void {
    etag = null;
    data.value = answer;
  }

  watch(
    url,
    () => {
      setAnswer(null);
      void refresh();
    },
    { immediate: true },
  );
  watch(visibility, (now) => now === "visible" && void refresh());
  return { data, error, refresh, take: setAnswer };
}
