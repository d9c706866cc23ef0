// Measured figures on the picture: sums over groups, a colour by share, a line of text.
import { count, duration, bytes, operations, ratio } from "../../lib/format";
import { change } from "../../lib/format-change";
import type { Measure, ProfileAnswer } from "../../api/graph";
import type { Heat } from "./canvas/highlights";
import type { Scene } from "./canvas/scene";
import type { Graph } from "./graph";

export type Sums = Record<Measure, Float64Array>;

/** Figures of all items; NaN where nothing below was measured. */
export function sumsOf(graph: Graph, profile: ProfileAnswer): Sums {
  const { time_ns, calls, flops, memory_bytes } = profile.columns;
  return {
    time_ns: sumOf(graph, time_ns),
    calls: sumOf(graph, calls),
    flops: sumOf(graph, flops),
    memory_bytes: sumOf(graph, memory_bytes),
  };
}

function sumOf(graph: Graph, column: (number | null)[]): Float64Array {
  const out = new Float64Array(graph.nodes + graph.groups).fill(NaN);
  for (let node = 0; node < graph.nodes; node += 1) {
    const value = column[node];
    if (value === null || value === undefined) continue;
    for (let item = node; item >= 0; item = graph.parent[item] as number)
      out[item] = Number.isNaN(out[item]) ? value : (out[item] as number) + value;
  }
  return out;
}

const TEXTS: Record<Measure, (value: number) => string> = {
  time_ns: duration,
  calls: count,
  flops: operations,
  memory_bytes: bytes,
};

export function measureText(measure: Measure, value: number): string {
  return Number.isNaN(value) ? "" : TEXTS[measure](value);
}

/** Colours compare what stands side by side in the picture: the boxes that are not open. */
export function heatOf(scene: Scene, sums: Sums, measure: Measure, total: number): Heat {
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
    const part = measure === "time_ns" && total > 0 && !Number.isNaN(value) ? ` · ${ratio(value / total)}` : "";
    text.push(measureText(measure, value) + part);
  });
  return { share, text, scale: "heat" };
}

/** Time of items in both runs, ns; NaN where one of them measured nothing. */
export interface Change {
  now: Float64Array;
  before: Float64Array;
}

/**
 * Of nodes that both runs measured, the base's time for as many calls: runs of different length compare. A group holds those below it.
 */
export function changeOf(graph: Graph, current: ProfileAnswer, base: ProfileAnswer): Change {
  const before = current.columns.time_ns.map((time, node) => {
    const [theirs, calls, theirCalls] = [
      base.columns.time_ns[node],
      current.columns.calls[node],
      base.columns.calls[node],
    ];
    return time == null || theirs == null || !calls || !theirCalls ? null : theirs * (calls / theirCalls);
  });
  const now = current.columns.time_ns.map((time, node) => (before[node] == null ? null : (time ?? null)));
  return { now: sumOf(graph, now), before: sumOf(graph, before) };
}

export function changeText({ now, before }: Change, item: number): string {
  const [a, b] = [before[item] ?? NaN, now[item] ?? NaN];
  if (Number.isNaN(a) || Number.isNaN(b)) return "";
  return (a === b ? "" : b > a ? "▲ " : "▼ ") + change("ns", a, b).replace(" (", " · ").replace(")", "");
}

/** What changed most stands out, whichever way. */
export function heatOfChange(scene: Scene, both: Change): Heat {
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
