// Measured figures on the picture: sums over groups, a colour by share, a line of text.
import { count, duration, bytes, operations, ratio } from "../../lib/format";
import type { Measure, ProfileAnswer } from "../../api/graph";
import type { Heat } from "./canvas/marks";
import type { Scene } from "./canvas/scene";
import type { Graph } from "./graph";

export type Sums = Record<Measure, Float64Array>;

/** Figures of all items; NaN where nothing below was measured. */
export function sums_of(graph: Graph, profile: ProfileAnswer): Sums {
  const sum = (column: (number | null)[]) => {
    const out = new Float64Array(graph.nodes + graph.groups).fill(NaN);
    for (let node = 0; node < graph.nodes; node += 1) {
      const value = column[node];
      if (value === null || value === undefined) continue;
      for (let item = node; item >= 0; item = graph.parent[item] as number) out[item] = Number.isNaN(out[item]) ? value : (out[item] as number) + value;
    }
    return out;
  };
  const { time_ns, calls, flops, memory_bytes } = profile.columns;
  return { time_ns: sum(time_ns), calls: sum(calls), flops: sum(flops), memory_bytes: sum(memory_bytes) };
}

const TEXTS: Record<Measure, (value: number) => string> = { time_ns: duration, calls: count, flops: operations, memory_bytes: bytes };

export function measure_text(measure: Measure, value: number): string {
  return Number.isNaN(value) ? "" : TEXTS[measure](value);
}

/** Colours compare what stands side by side in the picture: the boxes that are not open. */
export function heat_of(scene: Scene, sums: Sums, measure: Measure, total: number): Heat {
  const { item, open } = scene.picture;
  const values = sums[measure];
  let most = 0;
  item.forEach((one, i) => {
    const value = values[one] as number;
    if (!open[i] && value > most) most = value;
  });
  const share = new Float32Array(item.length).fill(NaN);
  const text: string[] = [];
  item.forEach((one, i) => {
    const value = values[one] as number;
    if (!Number.isNaN(value) && !open[i]) share[i] = most > 0 ? Math.sqrt(value / most) : 0;
    const part = measure === "time_ns" && total > 0 && !Number.isNaN(value) ? ` · ${ratio(value / total)}` : "";
    text.push(measure_text(measure, value) + part);
  });
  return { share, text };
}
