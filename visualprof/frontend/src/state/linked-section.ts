// Links may name a chart or a table of a page (`chart=steps`): scroll there once it exists, then forget it.
import { onScopeDispose, watch } from "vue";
import { patchQuery, queryValue } from "./address";

const RETRY_MS = 100;
const MOST_TRIES = 50;
const MARK_MS = 1600;

export function useLinkedPlace(): void {
  let timer = 0;

  function find(name: string, tries: number): void {
    const section = document.querySelector(`[data-place="${CSS.escape(name)}"]`);
    if (!section && tries < MOST_TRIES) {
      timer = window.setTimeout(() => find(name, tries + 1), RETRY_MS);
      return;
    }
    section?.scrollIntoView({ block: "center", behavior: "smooth" });
    section?.classList.add("marked");
    setTimeout(() => section?.classList.remove("marked"), MARK_MS);
    patchQuery({ chart: null, table: null });
  }

  watch(
    () => queryValue("chart") ?? queryValue("table"),
    (name) => {
      clearTimeout(timer);
      if (name !== null) find(name, 0);
    },
    { immediate: true },
  );
  onScopeDispose(() => clearTimeout(timer));
}
