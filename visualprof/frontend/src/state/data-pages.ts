// The pages of run data that the selected run has data for.
import { computed, shallowRef, watch } from "vue";
import { address, offlineReport, type KindsAnswer } from "../api";
import { usePolled } from "./polling";
import { run } from "./selection";

const KINDS_BY_PAGE: Readonly<Record<string, string>> = {
  scalars: "scalar",
  samples: "image audio text",
  distributions: "histogram",
  curves: "pr_curve roc_curve",
  trials: "trial",
  embeddings: "embedding",
};
const POLL_MS = 2000;

export const DATA_PAGES: readonly string[] = Object.keys(KINDS_BY_PAGE);

const hasData = computed(() => run.value?.data === true && !offlineReport);
const kinds = shallowRef<readonly string[] | null>(null);

/** Request the kinds of data of the selected run while the web UI is open. */
export function followDataKinds(): void {
  const { data } = usePolled<KindsAnswer>(
    () => (hasData.value ? address("data/kinds", { runs: JSON.stringify([run.value?.id]) }) : null),
    () => POLL_MS,
  );
  watch(data, (answer) => (kinds.value = answer?.kinds ?? null));
}

/** The pages with data, null while unknown. A report has none. */
export const dataPages = computed<readonly string[] | null>(() => {
  if (!hasData.value) return [];
  return (
    kinds.value &&
    DATA_PAGES.filter((page) => kinds.value?.some((kind) => KINDS_BY_PAGE[page]?.split(" ").includes(kind)))
  );
});
