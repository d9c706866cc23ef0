// Actions that choose the base of a comparison.
import type { Run } from "../api";
import {
  baseRun,
  baseSpan,
  baseStep,
  baseWorker,
  comparisonObstacle,
  patchQuery,
  run,
  span,
  runSpans,
  worker,
  type Obstacle,
} from "../state";

/** Return why a run cannot be compared: the reason of its files, if all have one. */
export function runObstacle(candidate: Run): Obstacle | null {
  const currentSpan = span.value;
  if (!currentSpan) return null;
  const reasons = runSpans(candidate).map((base) => comparisonObstacle(base, currentSpan));
  return reasons.includes(null)
    ? null
    : (reasons.find((reason) => reason !== "same") ?? (reasons.length > 0 ? "same" : "apart"));
}

/** Choose another file of the run. */
export function chooseBase(id: string): void {
  const other =
    id === run.value?.id
      ? run.value.workers
          .flatMap((candidate) => candidate.spans.map((file) => ({ one: candidate, file })))
          .find(({ file }) => file !== span.value && file.state !== "failed")
      : undefined;
  patchQuery({ base: id, base_worker: other?.one.id ?? null, base_span: other?.file.id ?? null }, true);
}

export function chooseBaseWorker(id: string): void {
  patchQuery({ base_worker: id, base_span: null }, true);
}

export function chooseBaseSpan(id: string): void {
  patchQuery({ base_worker: baseWorker.value?.id ?? null, base_span: id }, true);
}

export function removeBase(): void {
  patchQuery({ base: null, base_worker: null, base_span: null, phase: null }, true);
}

/** Swap the run and its base. */
export function swapBase(): void {
  if (!baseRun.value || !baseWorker.value || !baseSpan.value || !run.value) return;
  patchQuery(
    {
      run: baseRun.value.id,
      worker: baseWorker.value.id,
      span: baseSpan.value.id,
      step: baseStep.value,
      base: run.value.id,
      base_worker: worker.value?.id ?? null,
      base_span: span.value?.id ?? null,
    },
    true,
  );
}
