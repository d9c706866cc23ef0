// The runs that a page of run data shows.
import { computed } from "vue";
import { run, sortedRuns, useParameter } from "../state";
import { MAX_RUNS, parsePattern } from "./lines";

/** Return the runs whose names match the pattern in the address; without a pattern, the selected run or all runs. */
export function useShownRuns(fallback: "selected" | "all" = "selected") {
  const runText = useParameter("runs", "");
  const runPattern = computed(() => parsePattern(runText.value));
  const shownRuns = computed(() => {
    if (!runText.value && fallback === "selected") return run.value?.data ? [run.value] : [];
    return sortedRuns.value.filter((candidate) => candidate.data && runPattern.value?.test(candidate.name));
  });
  /** Ids as a JSON list, the parameter of the requests. */
  const runIds = computed(() => JSON.stringify(shownRuns.value.slice(0, MAX_RUNS).map((shown) => shown.id)));
  return { runText, runPattern, shownRuns, runIds };
}
