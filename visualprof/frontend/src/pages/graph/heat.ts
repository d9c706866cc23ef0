// Measurements on the picture: sums per group, a color by share, a line of text.
import { formatCount, formatDuration, formatBytes, formatOperations, formatRatio } from "../../lib/format";
import { formatChange } from "../../lib/format-change";
import type { Measure, ProfileAnswer } from "../../api/graph";
import type { HeatOverlay } from "./canvas/highlights";
import type { Scene } from "./canvas/scene";
import type { Graph } from "./graph";

export type Sums = Record<Measure, Float64Array>;

/** Measurements of all items; NaN if nothing below was measured. */
export function groupSums(graph: Graph, profile: ProfileAnswer): Sums {
  const { time_ns, calls, flops, memory_bytes } = profile.columns;
  return {
    time_ns: groupSum(graph, time_ns),
    calls: groupSum(graph, calls),
    flops: groupSum(graph, flops),
    memory_bytes: groupSum(graph, memory_bytes),
  };
}

function groupSum(graph: Graph, column: (number | null)[]): Float64Array {
  const out = new Float64Array(graph.nodes + graph.groups).fill(NaN);
  for (let node = 0; node < graph.nodes; node += 1) {
    const value = column[node];
    if (value === null || value === undefined) continue;
    for (let item = node; item >= 0; item = graph.parent[item] as number)
      out[item] = Number.isNaN(out[item]) ? value : (out[item] as number) + value;
  }
  return out;
}

const MEASURE_FORMATS: Record<Measure, (value: number) => string> = {
  time_ns: formatDuration,
  calls: formatCount,
  flops: formatOperations,
  memory_bytes: formatBytes,
};

export function measureText(measure: Measure, value: number): string {
  return Number.isNaN(value) ? "" : MEASURE_FORMATS[measure](value);
}

/** Colors compare boxes that are next to each other in the picture: those that are not open. */
export function heatOverlay(scene: Scene, sums: Sums, measure: Measure, total: number): HeatOverlay {
  const { item, open } = scene.picture;
  const values = sums[measure];
  let max = 0;
  item.forEach((graphItem, i) => {
    const value = values[graphItem] as number;
    if (!open[i] && value > max) max = value;
  });
  const share = new Float32Array(item.length).fill(NaN);
  const text: string[] = [];
  item.forEach((graphItem, i) => {
    const value = values[graphItem] as number;
    if (!Number.isNaN(value) && !open[i]) share[i] = max > 0 ? Math.sqrt(value / max) : 0;
    const part = measure === "time_ns" && total > 0 && !Number.isNaN(value) ? ` · ${formatRatio(value / total)}` : "";
    text.push(measureText(measure, value) + part);
  });
  return { share, text, scale: "heat" };
}

/** Time of items in both runs, in ns; NaN if one of them has no measurement. */
export interface ProfileChange {
  now: Float64Array;
  before: Float64Array;
}

/**
 * Compare two profiles. For nodes measured in both runs, the base's time is scaled to the same number of calls, so that
 * runs of different length are comparable. A group sums its nodes.
 */
export function compareProfiles(graph: Graph, current: ProfileAnswer, base: ProfileAnswer): ProfileChange {
  const before = current.columns.time_ns.map((time, node) => {
    const [theirs, calls, theirCalls] = [
      base.columns.time_ns[node],
      current.columns.calls[node],
      base.columns.calls[node],
    ];
    return time == null || theirs == null || !calls || !theirCalls ? null : theirs * (calls / theirCalls);
  });
  const now = current.columns.time_ns.map((time, node) => (before[node] == null ? null : (time ?? null)));
  return { now: groupSum(graph, now), before: groupSum(graph, before) };
}

export function changeText({ now, before }: ProfileChange, item: number): string {
  const [a, b] = [before[item] ?? NaN, now[item] ?? NaN];
  if (Number.isNaN(a) || Number.isNaN(b)) return "";
  return (a === b ? "" : b > a ? "▲ " : "▼ ") + formatChange("ns", a, b).replace(" (", " · ").replace(")", "");
}

/** The largest change has the strongest color, whether slower or faster. */
export function changeOverlay(scene: Scene, both: ProfileChange): HeatOverlay {
  const { item, open } = scene.picture;
  const deltas = Array.from(item, (graphItem, i) =>
    open[i] ? NaN : (both.now[graphItem] ?? NaN) - (both.before[graphItem] ?? NaN),
  );
  const largest = deltas.reduce((best, delta) => (Math.abs(delta) > best ? Math.abs(delta) : best), 0);
  const share = Float32Array.from(deltas, (delta) =>
    largest > 0 ? Math.sign(delta) * Math.sqrt(Math.abs(delta) / largest) : delta,
  );
  return { share, text: Array.from(item, (graphItem) => changeText(both, graphItem)), scale: "change" };
}
