// Open the timelines of ranks at a step, aligned by their common collectives.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address, get, type Worker } from "../../api";
import { queryValue, run, span, stepRange, useParameter } from "../../state";

// More timelines cannot be compared side by side.
export const MAX_TIMELINES = 16;

interface Aligned {
  workers: { worker: string; collective_residual_ns: number | null }[];
}
interface Steps {
  steps: { name: string; start_ns: number; duration_ns: number }[];
}

export function rankWorker(rank: number, workerName = ""): Worker | undefined {
  const workers = run.value?.workers ?? [];
  return (
    workers.find((worker) => worker.id === workerName || worker.name === workerName) ??
    workers.find((worker) => worker.rank === rank)
  );
}

/** The chosen ranks in their order, kept in the address. */
export function usePickedRanks() {
  const pickedRanks = useParameter("picked", "");
  const ranks = computed(() =>
    pickedRanks.value
      .split("~")
      .filter(Boolean)
      .map(Number)
      .filter((number) => rankWorker(number)),
  );
  function pick(rank: number): void {
    const next = ranks.value.includes(rank)
      ? ranks.value.filter((candidate) => candidate !== rank)
      : [...ranks.value, rank].slice(-MAX_TIMELINES);
    pickedRanks.value = next.join("~");
  }
  /** Replace the chosen ranks. */
  function stepWindow(numbers: readonly number[]): void {
    pickedRanks.value = numbers.slice(0, MAX_TIMELINES).join("~");
  }
  return { ranks, pick, mark: stepWindow };
}

/** Return the offsets of all workers but the first, in the format of the timeline's address. */
export function alignmentOffsets(aligned: Aligned["workers"], indexOf: (worker: string) => number): string {
  return aligned
    .slice(1)
    .flatMap(({ worker, collective_residual_ns: ns }) => (ns ? [`${indexOf(worker)}.${-ns}`] : []))
    .join("~");
}

/** Return the address of the timelines of some workers at a step. Timelines of several ranks are aligned. */
export async function timelinesLocation(workers: readonly Worker[], step: string): Promise<RouteLocationRaw> {
  const [first] = workers;
  const runWorkers = run.value?.workers ?? [];
  const alignedSpan = first?.spans.find((candidate) => candidate.id === span.value?.id) ?? first?.spans[0];
  if (!run.value || !first || !alignedSpan) return { path: "/trace" };
  const at = { run: run.value.id, span: alignedSpan.id, step_range: stepRange.value };
  const [meta, aligned] = await Promise.all([
    get<Steps>(address("timeline/meta", { ...at, worker: first.id, minimap: 0, counters: 0 })),
    workers.length > 1
      ? get<Aligned>(
          address("timeline/alignment", { ...at, workers: workers.map((worker) => worker.id).join(","), step }),
        )
      : null,
  ]);
  const mark = meta?.body.steps.find((candidate) => candidate.name === step);
  const indexOf = (id: string) => runWorkers.findIndex((worker) => worker.id === id);
  const query: Record<string, string> = { run: run.value.id, worker: first.id, span: alignedSpan.id };
  const base = queryValue("base");
  if (base) query["base"] = base;
  if (stepRange.value !== null) query["step_range"] = stepRange.value;
  if (mark) query["win"] = `${Math.round(mark.start_ns)}~${Math.round(mark.start_ns + mark.duration_ns)}`;
  if (workers.length > 1) {
    query["ranks"] = workers
      .map((worker) => indexOf(worker.id))
      .sort((a, b) => a - b)
      .join("~");
    const offsets = alignmentOffsets(aligned?.body.workers ?? [], indexOf);
    if (offsets) query["off"] = offsets;
  }
  return { path: "/trace", query };
}
