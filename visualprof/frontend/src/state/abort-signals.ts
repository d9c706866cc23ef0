import { onScopeDispose } from "vue";

/** Return a function that gives a new signal and aborts the previous one. Leaving the page aborts the last one. */
export function useLatestSignal(): () => AbortSignal {
  let control = new AbortController();
  onScopeDispose(() => control.abort());
  return () => {
    control.abort();
    control = new AbortController();
    return control.signal;
  };
}
