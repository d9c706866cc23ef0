// The base of the comparison: named in the address, completed by the base's item at the same position.
import { computed } from "vue";
import type { Query, Run, Span, Worker } from "../api";
import { queryValue } from "./address";
import { runs, runSpans } from "./runs";
import { fileStamp, run, selectedQuery, sortedRuns, span, step, stepRange, worker } from "./selection";

/** Why a run or file cannot be compared. */
export type Obstacle = "gone" | "same" | "unreadable" | "apart";

/** Rank 3 is compared with rank 3. */
function findCounterpart<T extends { id: string }>(
  candidates: readonly T[],
  wantedId: string | null,
  counterpart: T | null,
): T | null {
  return (
    candidates.find((item) => item.id === wantedId) ??
    candidates.find((item) => item.id === counterpart?.id) ??
    candidates[0] ??
    null
  );
}

export const baseId = computed(() => queryValue("base"));
export const baseRun = computed<Run | null>(
  () => runs.value.find((candidate) => candidate.id === baseId.value) ?? null,
);
export const baseWorker = computed<Worker | null>(() =>
  findCounterpart(baseRun.value?.workers ?? [], queryValue("base_worker"), worker.value),
);
export const baseSpan = computed<Span | null>(() =>
  findCounterpart(baseWorker.value?.spans ?? [], queryValue("base_span"), span.value),
);

/** Return why one file cannot be compared with another. */
export function comparisonObstacle(base: Span, span: Span): Obstacle | null {
  if (base === span) return "same";
  if (base.state === "failed") return "unreadable";
  const bothKnown = (base.state === "ready" || base.views.length > 0) && span.views.length > 0;
  return bothKnown && !base.views.some((view) => span.views.includes(view)) ? "apart" : null;
}

/** Why the base in the address cannot be compared; null while there is none. */
export const obstacle = computed<Obstacle | null>(() => {
  if (baseId.value === null || runs.value.length === 0) return null;
  if (!baseSpan.value) return baseRun.value ? "apart" : "gone";
  return span.value && comparisonObstacle(baseSpan.value, span.value);
});

/** Whether there is any possible base, or the address names one. */
export const hasBases = computed(
  () =>
    baseId.value !== null ||
    sortedRuns.value.some((candidate) => candidate !== run.value) ||
    (run.value !== null && runSpans(run.value).length > 1),
);

/**
 * The base's step for the chosen one: of the same name or, because a later recording continues the count, at the same
 * position.
 */
export const baseStep = computed<string | null>(() => {
  if (stepRange.value !== null) return step.value; // the file does not list these steps
  const steps = baseSpan.value?.steps ?? [];
  if (step.value === null || steps.includes(step.value)) return step.value;
  return steps[span.value?.steps.indexOf(step.value) ?? -1] ?? steps[steps.length - 1] ?? null;
});

/** The base as query parameters of the views and the timeline. */
export const baseQuery = computed<Query | null>(() => {
  if (!baseRun.value || !baseWorker.value || !baseSpan.value || obstacle.value) return null;
  return {
    run: baseRun.value.id,
    worker: baseWorker.value.id,
    span: baseSpan.value.id,
    step: baseStep.value,
    step_range: stepRange.value,
  };
});

/** The query parameters of a comparison; null unless two runs can be compared. */
export const comparedQuery = computed<Query | null>(() => {
  const base = baseQuery.value;
  return (
    base &&
    selectedQuery.value && {
      ...selectedQuery.value,
      base: base["run"],
      base_worker: base["worker"],
      base_span: base["span"],
      base_step: stepRange.value === null ? base["step"] : null, // the server matches steps by position
    }
  );
});

/** Changes when one of the two files changes. */
export const comparedStamp = computed(
  () => `${fileStamp.value} ${baseSpan.value?.modified_ns ?? 0} ${baseSpan.value?.state ?? ""}`,
);
