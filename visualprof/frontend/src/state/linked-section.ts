// Links may name a chart or table of a page (`chart=steps`): scroll to it once it exists, then remove the parameter.
import { onScopeDispose, watch } from "vue";
import { patchQuery, queryValue } from "./address";

const RETRY_MS = 100;
const MAX_TRIES = 50;
const HIGHLIGHT_MS = 1600;

export function useLinkedSection(): void {
  let timer = 0;

  function scrollTo(name: string, tries: number): void {
    const section = document.querySelector(`[data-place="${CSS.escape(name)}"]`);
    if (!section && tries < MAX_TRIES) {
      timer = window.setTimeout(() => scrollTo(name, tries + 1), RETRY_MS);
      return;
    }
    section?.scrollIntoView({ block: "center", behavior: "smooth" });
    section?.classList.add("marked");
    setTimeout(() => section?.classList.remove("marked"), HIGHLIGHT_MS);
    patchQuery({ chart: null, table: null });
  }

  watch(
    () => queryValue("chart") ?? queryValue("table"),
    (name) => {
      clearTimeout(timer);
      if (name !== null) scrollTo(name, 0);
    },
    { immediate: true },
  );
  onScopeDispose(() => clearTimeout(timer));
}
