import { onScopeDispose } from "vue";

/** Gives signals of which only the newest lives: each call aborts what the one before began, and leaving the page the last. */
export function useLatestSignal(): () => AbortSignal {
  let control = new AbortController();
  onScopeDispose(() => control.abort());
  return () => {
    control.abort();
    control = new AbortController();
    return control.signal;
  };
}
