// The model of the selected run, and the location of a table's operator in it.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address } from "../api/client";
import type { MatchesAnswer } from "../api/graph";
import { linkedLocation } from "./address";
import { usePolled } from "./polling";
import { selectedQuery } from "./selection";

const ACTIVE_POLL_MS = 1000;
const IDLE_POLL_MS = 10_000;

/** Models by how well their nodes match the run's measurements; null while unknown, or without a profile. */
export function useModelMatches() {
  const url = computed(() => {
    const selection = selectedQuery.value;
    return (
      selection &&
      address("models/match", { run: selection["run"], worker: selection["worker"], span: selection["span"] })
    );
  });
  const { data, error, refresh } = usePolled<MatchesAnswer>(
    () => url.value,
    (answer) => (answer && answer.reading === 0 ? IDLE_POLL_MS : ACTIVE_POLL_MS),
  );
  return { matches: data, error, refresh };
}

export function useRunModel() {
  const { matches } = useModelMatches();

  /** Return the nodes of that name, or null if no model fits the run. */
  function nodeLocation(name: string): RouteLocationRaw | null {
    const model = matches.value?.best;
    return model ? linkedLocation(`/graph?model=${encodeURIComponent(model)}&find=${encodeURIComponent(name)}`) : null;
  }
  return { nodeLocation };
}
