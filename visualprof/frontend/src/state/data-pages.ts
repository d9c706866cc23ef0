// The pages of run data that the selected run has data for.
import { computed, shallowRef, watch } from "vue";
import { address, offlineReport, type KindsAnswer } from "../api";
import { usePolled } from "./polling";
import { run } from "./selection";

const PAGE_BY_KIND: Readonly<Record<string, string>> = {
  scalar: "scalars",
  image: "samples",
  audio: "samples",
  text: "samples",
  histogram: "distributions",
  pr_curve: "curves",
  roc_curve: "curves",
};
const POLL_MS = 5000;
const READING_POLL_MS = 500;

export const DATA_PAGES: readonly string[] = [...new Set(Object.values(PAGE_BY_KIND))];

const hasData = computed(() => run.value?.data === true && !offlineReport);
const kinds = shallowRef<readonly string[] | null>(null);

/** Request the kinds of data of the selected run while the web UI is open. */
export function followDataKinds(): void {
  const { data } = usePolled<KindsAnswer>(
    () => (hasData.value ? address("data/kinds", { runs: JSON.stringify([run.value?.id]) }) : null),
    (answer) => (answer?.complete === false ? READING_POLL_MS : POLL_MS),
  );
  watch(data, (answer) => (kinds.value = answer?.kinds ?? null));
}

/** The pages with data, null while unknown. A report has none. */
export const dataPages = computed<readonly string[] | null>(() => {
  if (!hasData.value) return [];
  const present = new Set(kinds.value?.map((kind) => PAGE_BY_KIND[kind]));
  return kinds.value && DATA_PAGES.filter((page) => present.has(page));
});
