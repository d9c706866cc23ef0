// The way from ranks and a step to their timelines, laid on one axis by the collectives that they share.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address, get, type Worker } from "../../api";
import { queryValue, run, span, useParameter } from "../../state";

// More timelines than that nobody reads side by side.
export const MOST_TIMELINES = 16;

interface Aligned {
  workers: { worker: string; collective_residual_ns: number | null }[];
}
interface Steps {
  steps: { name: string; start_ns: number; duration_ns: number }[];
}

export function workerOf(rank: number, known = ""): Worker | undefined {
  const workers = run.value?.workers ?? [];
  return workers.find((one) => one.id === known || one.name === known) ?? workers.find((one) => one.rank === rank);
}

/** The ranks that were chosen, in that order; the address has them. */
export function usePicked() {
  const picked = useParameter("picked", "");
  const ranks = computed(() =>
    picked.value
      .split("~")
      .filter(Boolean)
      .map(Number)
      .filter((one) => workerOf(one)),
  );
  function pick(rank: number): void {
    const next = ranks.value.includes(rank)
      ? ranks.value.filter((one) => one !== rank)
      : [...ranks.value, rank].slice(-MOST_TIMELINES);
    picked.value = next.join("~");
  }
  /** Chooses these instead of what was chosen. */
  function mark(numbers: readonly number[]): void {
    picked.value = numbers.slice(0, MOST_TIMELINES).join("~");
  }
  return { ranks, pick, mark };
}

/** Of each worker but the first one what its timeline is moved by, as the timeline's address has it. */
export function offsetsOf(aligned: Aligned["workers"], place: (worker: string) => number): string {
  return aligned
    .slice(1)
    .flatMap(({ worker, collective_residual_ns: ns }) => (ns ? [`${place(worker)}.${-ns}`] : []))
    .join("~");
}

/** The timelines of some workers at a step; those of several ranks are aligned. */
export async function timelinesLocation(workers: readonly Worker[], step: string): Promise<RouteLocationRaw> {
  const [first] = workers;
  const all = run.value?.workers ?? [];
  const own = first?.spans.find((one) => one.id === span.value?.id) ?? first?.spans[0];
  if (!run.value || !first || !own) return { path: "/trace" };
  const at = { run: run.value.id, span: own.id };
  const [meta, aligned] = await Promise.all([
    get<Steps>(address("timeline/meta", { ...at, worker: first.id, minimap: 0 })),
    workers.length > 1
      ? get<Aligned>(address("timeline/alignment", { ...at, workers: workers.map((one) => one.id).join(","), step }))
      : null,
  ]);
  const mark = meta?.body.steps.find((one) => one.name === step);
  const place = (id: string) => all.findIndex((one) => one.id === id);
  const query: Record<string, string> = { run: run.value.id, worker: first.id, span: own.id };
  const base = queryValue("base");
  if (base) query["base"] = base;
  if (mark) query["win"] = `${Math.round(mark.start_ns)}~${Math.round(mark.start_ns + mark.duration_ns)}`;
  if (workers.length > 1) {
    query["ranks"] = workers
      .map((one) => place(one.id))
      .sort((a, b) => a - b)
      .join("~");
    const offsets = offsetsOf(aligned?.body.workers ?? [], place);
    if (offsets) query["off"] = offsets;
  }
  return { path: "/trace", query };
}
