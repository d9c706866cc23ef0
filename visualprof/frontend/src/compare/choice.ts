// What somebody does to choose what the shown run is compared with.
import type { Run } from "../api";
import {
  base_run,
  base_span,
  base_step,
  base_worker,
  between,
  patch_query,
  run,
  span,
  spans_of,
  worker,
  type Obstacle,
} from "../state";

/** Of a run as a whole: the reason of its files, where all have one. */
export function obstacle_of(one: Run): Obstacle | null {
  const shown = span.value;
  if (!shown) return null;
  const reasons = spans_of(one).map((base) => between(base, shown));
  return reasons.includes(null)
    ? null
    : (reasons.find((reason) => reason !== "same") ?? (reasons.length > 0 ? "same" : "apart"));
}

/** Of the run that is shown, another of its files. */
export function choose_base(id: string): void {
  const other =
    id === run.value?.id
      ? run.value.workers
          .flatMap((one) => one.spans.map((file) => ({ one, file })))
          .find(({ file }) => file !== span.value && file.state !== "failed")
      : undefined;
  patch_query({ base: id, base_worker: other?.one.id ?? null, base_span: other?.file.id ?? null }, true);
}

export function choose_base_worker(id: string): void {
  patch_query({ base_worker: id, base_span: null }, true);
}

export function choose_base_span(id: string): void {
  patch_query({ base_worker: base_worker.value?.id ?? null, base_span: id }, true);
}

export function remove_base(): void {
  patch_query({ base: null, base_worker: null, base_span: null, phase: null }, true);
}

/** The base becomes what is shown, and what is shown its base. */
export function swap_base(): void {
  if (!base_run.value || !base_worker.value || !base_span.value || !run.value) return;
  patch_query(
    {
      run: base_run.value.id,
      worker: base_worker.value.id,
      span: base_span.value.id,
      step: base_step.value,
      base: run.value.id,
      base_worker: worker.value?.id ?? null,
      base_span: span.value?.id ?? null,
    },
    true,
  );
}
