// What somebody does to choose what the shown run is compared with.
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

/** Of a run as a whole: the reason of its files, where all have one. */
export function runObstacle(candidate: Run): Obstacle | null {
  const currentSpan = span.value;
  if (!currentSpan) return null;
  const reasons = runSpans(candidate).map((base) => comparisonObstacle(base, currentSpan));
  return reasons.includes(null)
    ? null
    : (reasons.find((reason) => reason !== "same") ?? (reasons.length > 0 ? "same" : "apart"));
}

/** Of the run that is shown, another of its files. */
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

/** The base becomes what is shown, and what is shown its base. */
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
