// Measurements of the shown model in the selected run or its base. Missing measurements are not an error: most models
// were never profiled.
import { computed } from "vue";
import { address, type Query } from "../../api/client";
import { comparedStamp, useResource } from "../../state";
import { MEASURES, type Measure, type ProfileAnswer } from "../../api/graph";
import { groupSums, type Sums } from "./heat";
import type { ModelSession } from "./model-session";

export type Measurements = ReturnType<typeof useMeasurements>;

export function useMeasurements(model: () => string | null, session: ModelSession, profileQuery: () => Query | null) {
  const { data: answer, error } = useResource<ProfileAnswer>(
    () => {
      const selection = profileQuery();
      const id = model();
      return id && selection && session.graph.value?.answer.model.id === id
        ? address("graph/profile", {
            model: id,
            run: selection["run"],
            worker: selection["worker"],
            span: selection["span"],
          })
        : null;
    },
    () => comparedStamp.value,
  );
  const data = computed(() => (answer.value && answer.value.matched_nodes > 0 ? answer.value : null));
  const sums = computed<Sums | null>(() =>
    session.graph.value && data.value?.columns.time_ns.length === session.graph.value.nodes
      ? groupSums(session.graph.value, data.value)
      : null,
  );
  /** The available measures. */
  const available = computed<Measure[]>(() =>
    data.value && sums.value
      ? MEASURES.filter((name) => data.value?.columns[name].some((value) => value !== null && value !== 0))
      : [],
  );
  /** Whether no node of the model has a time. */
  const unmatched = computed(() => answer.value?.matched_nodes === 0);
  /** One sentence that says why no node has a time. */
  const reason = computed(() => answer.value?.reason ?? "");
  return { data, error, sums, available, unmatched, reason };
}
