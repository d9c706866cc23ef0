// Whether a model lies beside the selected run, and where an operator of a table stands in it.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address } from "../api/client";
import type { ModelsAnswer } from "../api/graph";
import { linked_location } from "./address";
import { useResource } from "./resource";
import { run } from "./selection";

export function useRunModel() {
  const { data } = useResource<ModelsAnswer>(() => address("models"), () => run.value?.modified_ns);
  const model = computed(() => data.value?.models.find((one) => one.run !== null && one.run === run.value?.id) ?? null);

  /** The nodes of that name; null when no model lies beside the run. */
  function node_location(name: string): RouteLocationRaw | null {
    return model.value ? linked_location(`/graph?model=${encodeURIComponent(model.value.id)}&find=${encodeURIComponent(name)}`) : null;
  }
  return { node_location };
}
