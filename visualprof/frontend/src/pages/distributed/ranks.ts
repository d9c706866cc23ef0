// The ranks of a run: means of their steps, their devices, and texts for late ranks.
import type { Cell, Columns, RunSummary } from "../../api/model";

export interface RankMeans {
  rank: number;
  worker: string;
  steps: number;
  total_ns: number;
  computation_ns: number;
  communication_ns: number;
  /** Communication that is not hidden by computation. */
  exposed_ns: number;
}

const number = (value: Cell | undefined) => (typeof value === "number" ? value : 0);

/** One entry per rank, in the order of the ranks. */
export function rankMeans(columns: Columns): RankMeans[] {
  const rows = (columns["rank"] ?? []).map((rank, row) => {
    const at = (name: string) => number(columns[name]?.[row]);
    return {
      rank: number(rank),
      worker: String(columns["worker"]?.[row] ?? ""),
      steps: at("steps"),
      total_ns: at("total_ns"),
      computation_ns: at("computation_ns"),
      communication_ns: at("communication_ns"),
      exposed_ns: at("exposed_ns"),
    };
  });
  return rows.sort((a, b) => a.rank - b.rank);
}

interface Imbalance {
  most: { rank: number; computation_ns: number };
  least: { rank: number; computation_ns: number };
  /** The longest computation divided by the mean of all, minus 1. */
  excess: number;
}

// A smaller imbalance is within the variation between steps of one rank.
const BALANCED_SHARE = 0.05;

/** Return the imbalance of the computation, or null if it is balanced or there is nothing to compare. */
export function imbalance(summary: RunSummary): Imbalance | null {
  const {
    longest_rank: slowest,
    longest_ns: longest,
    shortest_rank: fastest,
    shortest_ns: shortest,
    computation_ns: mean,
  } = summary;
  if (
    summary.ranks < 2 ||
    slowest === null ||
    fastest === null ||
    longest === null ||
    shortest === null ||
    !mean ||
    longest / mean - 1 < BALANCED_SHARE
  )
    return null;
  return {
    most: { rank: slowest, computation_ns: longest },
    least: { rank: fastest, computation_ns: shortest },
    excess: longest / mean - 1,
  };
}

export interface RankDevice {
  rank: number;
  host: string;
  id: Cell;
  name: string;
  memory_bytes: number;
  compute_capability: string;
  utilization: number | null;
}

/** One entry per device, in the order of the answer. */
export function rankDevices(columns: Columns): RankDevice[] {
  return (columns["rank"] ?? []).map((rank, row) => {
    const at = (name: string) => columns[name]?.[row] ?? null;
    const text = (name: string) => String(at(name) ?? "");
    const utilization = at("utilization");
    return {
      rank: number(rank),
      host: text("host"),
      id: at("id"),
      name: text("name"),
      memory_bytes: number(at("memory_bytes")),
      compute_capability: text("compute_capability"),
      utilization: typeof utilization === "number" ? utilization : null,
    };
  });
}
