// Which model the selected run is of, and where an operator of a table stands in it.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address } from "../api/client";
import type { MatchesAnswer } from "../api/graph";
import { linked_location } from "./address";
import { usePolled } from "./polled";
import { selected_query } from "./selection";

const READING_MS = 1000;
const CALM_MS = 10_000;

/** Models by how well their nodes fit what the run measured; null while that is not known, or without a profile. */
export function useModelMatches() {
  const url = computed(() => {
    const selection = selected_query.value;
    return (
      selection &&
      address("models/match", { run: selection["run"], worker: selection["worker"], span: selection["span"] })
    );
  });
  const { data, error, refresh } = usePolled<MatchesAnswer>(
    () => url.value,
    (answer) => (answer && answer.reading === 0 ? CALM_MS : READING_MS),
  );
  return { matches: data, error, refresh };
}

export function useRunModel() {
  const { matches } = useModelMatches();

  /** The nodes of that name; null when no model fits the run. */
  function node_location(name: string): RouteLocationRaw | null {
    const model = matches.value?.best;
    return model ? linked_location(`/graph?model=${encodeURIComponent(model)}&find=${encodeURIComponent(name)}`) : null;
  }
  return { node_location };
}
