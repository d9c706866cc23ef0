// The run, worker, span and step that the pages show: from the address, completed by the first available ones.
import { computed } from "vue";
import type { Query, Run, Span, Worker } from "../api";
import { patchQuery, queryValue } from "./address";
import { runs, runSpans } from "./runs";

const NATURAL_ORDER = new Intl.Collator("en", { numeric: true });

/** Newest first: users usually look for the run they just made. */
export const sortedRuns = computed<Run[]>(() =>
  [...runs.value].sort((a, b) => b.modified_ns - a.modified_ns || NATURAL_ORDER.compare(a.id, b.id)),
);

/** A run that the address names but that does not exist (deleted or renamed). */
export const missingRun = computed(() => {
  const runId = queryValue("run");
  return runId !== null && runs.value.length > 0 && !runs.value.some((run) => run.id === runId) ? runId : null;
});

export const run = computed<Run | null>(() => {
  const runId = queryValue("run");
  if (runId !== null) return runs.value.find((candidate) => candidate.id === runId) ?? null;
  // Without a run in the address, a run that can be shown is preferred to the newest one.
  return (
    sortedRuns.value.find((candidate) => runSpans(candidate).some((span) => span.state === "ready")) ??
    sortedRuns.value[0] ??
    null
  );
});

export const worker = computed<Worker | null>(() => {
  const workers = run.value?.workers ?? [];
  return workers.find((candidate) => candidate.id === queryValue("worker")) ?? workers[0] ?? null;
});

export const span = computed<Span | null>(() => {
  const spans = worker.value?.spans ?? [];
  return spans.find((candidate) => candidate.id === queryValue("span")) ?? spans[0] ?? null;
});

/** Pattern of the ranges that are steps, in place of the file's own; null for these. */
export const stepRange = computed<string | null>(() => queryValue("step_range"));

export const step = computed<string | null>(() => {
  const stepName = queryValue("step");
  if (stepRange.value !== null) return stepName;
  return stepName !== null && span.value?.steps.includes(stepName) ? stepName : null;
});

/** A file that is still being written can be shown so far. */
export const viewable = computed(
  () =>
    span.value !== null &&
    (span.value.state === "ready" || span.value.state === "growing") &&
    span.value.views.length > 0,
);

/** The parameters of every view request; null if there is nothing to request. */
export const selectedQuery = computed<Query | null>(() => {
  if (!run.value || !worker.value || !span.value || !viewable.value) return null;
  return {
    run: run.value.id,
    worker: worker.value.id,
    span: span.value.id,
    step: step.value,
    step_range: stepRange.value,
  };
});

/** Changes with the selected file, so that a replaced or completed file is read again. */
export const fileStamp = computed(
  () => `${span.value?.file ?? ""} ${span.value?.modified_ns ?? 0} ${span.value?.state ?? ""}`,
);

export function selectRun(id: string): void {
  // The worker is kept if the new run has one of the same name: comparing rank 3 of two runs is common.
  const next = runs.value.find((candidate) => candidate.id === id);
  const keepsWorker = next?.workers.some((candidate) => candidate.id === worker.value?.id) ?? false;
  const nextWorker = keepsWorker && worker.value !== run.value?.workers[0] ? (worker.value?.id ?? null) : null;
  patchQuery({ run: id, worker: nextWorker, span: null, step: null }, true);
}

export function selectWorker(id: string): void {
  const next = run.value?.workers.find((candidate) => candidate.id === id);
  const keepsSpan = next?.spans.some((candidate) => candidate.id === span.value?.id) ?? false;
  patchQuery({ worker: id, span: keepsSpan ? queryValue("span") : null }, true);
}

export function selectSpan(id: string): void {
  patchQuery({ span: id, step: null }, true);
}

export function selectStep(name: string | null): void {
  patchQuery({ step: name }, true);
}

export function selectStepRange(pattern: string): void {
  patchQuery({ step_range: pattern.trim() || null, step: null }, true);
}

/** Go through all steps, 1st, 2nd, ... without wrapping. */
export function moveStep(delta: 1 | -1): void {
  if (stepRange.value !== null) return; // the file does not list these steps
  const order = [null, ...(span.value?.steps ?? [])];
  const next = order.indexOf(step.value) + delta;
  if (next >= 0 && next < order.length) selectStep(order[next] ?? null);
}
