// Which run, worker, span and step the pages show: the address, completed by the first of what there is.
import { computed } from "vue";
import type { Query, Run, Span, Worker } from "../api";
import { patch_query, query_value } from "./address";
import { runs, spans_of } from "./runs";

const NATURAL = new Intl.Collator("en", { numeric: true });

/** Newest first: the run someone just made is the one they came to look at. */
export const sorted_runs = computed<Run[]>(() =>
  [...runs.value].sort((a, b) => b.modified_ns - a.modified_ns || NATURAL.compare(a.id, b.id)),
);

/** A run that the address names but that is not there (deleted or renamed). */
export const missing_run = computed(() => {
  const wanted = query_value("run");
  return wanted !== null && runs.value.length > 0 && !runs.value.some((run) => run.id === wanted) ? wanted : null;
});

export const run = computed<Run | null>(() => {
  const wanted = query_value("run");
  if (wanted !== null) return runs.value.find((one) => one.id === wanted) ?? null;
  // Until the address names one, a run that can be shown is better than the newest that cannot.
  return (
    sorted_runs.value.find((one) => spans_of(one).some((span) => span.state === "ready")) ??
    sorted_runs.value[0] ??
    null
  );
});

export const worker = computed<Worker | null>(() => {
  const all = run.value?.workers ?? [];
  return all.find((one) => one.id === query_value("worker")) ?? all[0] ?? null;
});

export const span = computed<Span | null>(() => {
  const all = worker.value?.spans ?? [];
  return all.find((one) => one.id === query_value("span")) ?? all[0] ?? null;
});

export const step = computed<string | null>(() => {
  const wanted = query_value("step");
  return wanted !== null && span.value?.steps.includes(wanted) ? wanted : null;
});

/** A file that is still written can be shown as far as it goes. */
export const viewable = computed(
  () =>
    span.value !== null &&
    (span.value.state === "ready" || span.value.state === "growing") &&
    span.value.views.length > 0,
);

/** The parameters that every view request carries; null while there is nothing to ask for. */
export const selected_query = computed<Query | null>(() => {
  if (!run.value || !worker.value || !span.value || !viewable.value) return null;
  return { run: run.value.id, worker: worker.value.id, span: span.value.id, step: step.value };
});

/** Changes when the selected file does, so that a replaced or completed file is read again. */
export const file_stamp = computed(
  () => `${span.value?.file ?? ""} ${span.value?.modified_ns ?? 0} ${span.value?.state ?? ""}`,
);

export function select_run(id: string): void {
  // The worker stays where the new run has one of that name: comparing rank 3 of two runs is common.
  const next = runs.value.find((one) => one.id === id);
  const keeps_worker = next?.workers.some((one) => one.id === worker.value?.id) ?? false;
  const next_worker = keeps_worker && worker.value !== run.value?.workers[0] ? (worker.value?.id ?? null) : null;
  patch_query({ run: id, worker: next_worker, span: null, step: null }, true);
}

export function select_worker(id: string): void {
  const next = run.value?.workers.find((one) => one.id === id);
  const keeps_span = next?.spans.some((one) => one.id === span.value?.id) ?? false;
  patch_query({ worker: id, span: keeps_span ? query_value("span") : null }, true);
}

export function select_span(id: string): void {
  patch_query({ span: id, step: null }, true);
}

export function select_step(name: string | null): void {
  patch_query({ step: name }, true);
}

/** Walks all steps, 1st, 2nd, ... without wrapping. */
export function move_step(by: 1 | -1): void {
  const order = [null, ...(span.value?.steps ?? [])];
  const next = order.indexOf(step.value) + by;
  if (next >= 0 && next < order.length) select_step(order[next] ?? null);
}
