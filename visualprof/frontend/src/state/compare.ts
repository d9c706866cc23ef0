// Which run the shown one is compared with: the address names it, completed by what stands at the same place of the base.
import { computed } from "vue";
import type { Query, Run, Span, Worker } from "../api";
import { query_value } from "./address";
import { runs, spans_of } from "./runs";
import { file_stamp, run, selected_query, sorted_runs, span, step, worker } from "./selection";

/** Why a run or file cannot be what another is compared with. */
export type Obstacle = "gone" | "same" | "unreadable" | "apart";

/** Rank 3 is compared with rank 3. */
function at_same_place<T extends { id: string }>(all: readonly T[], named: string | null, shown: T | null): T | null {
  return all.find((one) => one.id === named) ?? all.find((one) => one.id === shown?.id) ?? all[0] ?? null;
}

export const base_id = computed(() => query_value("base"));
export const base_run = computed<Run | null>(() => runs.value.find((one) => one.id === base_id.value) ?? null);
export const base_worker = computed<Worker | null>(() =>
  at_same_place(base_run.value?.workers ?? [], query_value("base_worker"), worker.value),
);
export const base_span = computed<Span | null>(() =>
  at_same_place(base_worker.value?.spans ?? [], query_value("base_span"), span.value),
);

/** Why one file cannot be compared with another. */
export function between(base: Span, shown: Span): Obstacle | null {
  if (base === shown) return "same";
  if (base.state === "failed") return "unreadable";
  const known = (base.state === "ready" || base.views.length > 0) && shown.views.length > 0;
  return known && !base.views.some((view) => shown.views.includes(view)) ? "apart" : null;
}

/** Why the base that the address names cannot be compared with; null while there is none. */
export const obstacle = computed<Obstacle | null>(() => {
  if (base_id.value === null || runs.value.length === 0) return null;
  if (!base_span.value) return base_run.value ? "apart" : "gone";
  return span.value && between(base_span.value, span.value);
});

/** Whether there is anything to compare with, or the address says so. */
export const has_bases = computed(
  () =>
    base_id.value !== null ||
    sorted_runs.value.some((one) => one !== run.value) ||
    (run.value !== null && spans_of(run.value).length > 1),
);

/** The step that stands beside the chosen one: of the same name, else of the same place, for a later recording counts on. */
export const base_step = computed<string | null>(() => {
  const steps = base_span.value?.steps ?? [];
  if (step.value === null || steps.includes(step.value)) return step.value;
  return steps[span.value?.steps.indexOf(step.value) ?? -1] ?? steps[steps.length - 1] ?? null;
});

/** The base as the views and the timeline ask for it. */
export const base_query = computed<Query | null>(() => {
  if (!base_run.value || !base_worker.value || !base_span.value || obstacle.value) return null;
  return { run: base_run.value.id, worker: base_worker.value.id, span: base_span.value.id, step: base_step.value };
});

/** What a question about both carries; null unless two can be compared. */
export const compared_query = computed<Query | null>(() => {
  const base = base_query.value;
  return (
    base &&
    selected_query.value && {
      ...selected_query.value,
      base: base["run"],
      base_worker: base["worker"],
      base_span: base["span"],
      base_step: base["step"],
    }
  );
});

/** Changes when one of both files does. */
export const compared_stamp = computed(
  () => `${file_stamp.value} ${base_span.value?.modified_ns ?? 0} ${base_span.value?.state ?? ""}`,
);
