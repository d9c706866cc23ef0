// The ranks of a run: the means of their steps, what they run on, and the words for who is late.
import type { Cell, Columns, RankDevice } from "../../api/model";

export interface RankMeans {
  rank: number;
  worker: string;
  steps: number;
  total_ns: number;
  computation_ns: number;
  communication_ns: number;
  /** Communication that no computation hides. */
  exposed_ns: number;
}

const number = (value: Cell | undefined) => (typeof value === "number" ? value : 0);

/** One entry a rank, in the order of the ranks. */
export function rank_means(columns: Columns): RankMeans[] {
  const rows = (columns["rank"] ?? []).map((rank, row) => {
    const at = (name: string) => number(columns[name]?.[row]);
    return {
      rank: number(rank), worker: String(columns["worker"]?.[row] ?? ""), steps: at("steps"), total_ns: at("total_ns"),
      computation_ns: at("computation_ns"), communication_ns: at("communication_ns"), exposed_ns: at("exposed_ns"),
    };
  });
  return rows.sort((a, b) => a.rank - b.rank);
}

interface Imbalance {
  most: RankMeans;
  least: RankMeans;
  /** The longest computation over the mean of all, less 1. */
  excess: number;
}

// Below this the ranks differ as much as the steps of one do.
const EVEN = 0.05;

/** How unevenly the computation is spread; null when it is even or there is nothing to compare. */
export function imbalance(ranks: readonly RankMeans[]): Imbalance | null {
  if (ranks.length < 2) return null;
  const sorted = [...ranks].sort((a, b) => a.computation_ns - b.computation_ns);
  const [least, most] = [sorted[0], sorted[sorted.length - 1]];
  const mean = sorted.reduce((all, one) => all + one.computation_ns, 0) / sorted.length;
  if (!least || !most || mean <= 0 || most.computation_ns / mean - 1 < EVEN) return null;
  return { most, least, excess: most.computation_ns / mean - 1 };
}

export function devices_of(devices: readonly RankDevice[], rank: number): RankDevice[] {
  return devices.filter((one) => one.rank === rank);
}
