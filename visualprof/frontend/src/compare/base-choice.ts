// What somebody does to choose what the shown run is compared with.
import type { Run } from "../api";
import {
  baseRun,
  baseSpan,
  baseStep,
  baseWorker,
  between,
  patchQuery,
  run,
  span,
  spansOf,
  worker,
  type Obstacle,
} from "../state";

/** Of a run as a whole: the reason of its files, where all have one. */
export function obstacleOf(one: Run): Obstacle | null {
  const shown = span.value;
  if (!shown) return null;
  const reasons = spansOf(one).map((base) => between(base, shown));
  return reasons.includes(null)
    ? null
    : (reasons.find((reason) => reason !== "same") ?? (reasons.length > 0 ? "same" : "apart"));
}

/** Of the run that is shown, another of its files. */
export function chooseBase(id: string): void {
  const other =
    id === run.value?.id
      ? run.value.workers
          .flatMap((one) => one.spans.map((file) => ({ one, file })))
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
