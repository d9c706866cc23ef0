// Memory in use at the peak, as shares of the total.
import type { MemoryPeak } from "../../api/model";

const PEAK_GROUPS = ["categories", "operators", "modules"] as const;
export type PeakGroup = (typeof PEAK_GROUPS)[number];

export interface PeakShare {
  name: string;
  bytes: number;
  allocations: number | null;
  share: number;
  /** Memory allocated before the profile started; its purpose is unknown. */
  before: boolean;
}

/** Allocations that a click on the peak selects: those of one entry of a grouping, or all of them. */
export interface PeakFilter {
  group: PeakGroup | null;
  /** "" for memory outside of all operators or modules. */
  name: string;
}

/** Columns of the table of allocations by grouping. */
export const GROUP_COLUMNS: Record<PeakGroup, string> = {
  categories: "category",
  operators: "name",
  modules: "module",
};

/** Return the filters of the table of allocations for a selection. */
export function filterQuery({ group, name }: PeakFilter): Record<string, string> {
  if (group === null) return {};
  return name ? { [`is.${GROUP_COLUMNS[group]}`]: name } : { [`none.${GROUP_COLUMNS[group]}`]: "1" };
}

export function availableGroups(peak: MemoryPeak): PeakGroup[] {
  return PEAK_GROUPS.filter((group) => (peak[group]?.total_rows ?? 0) > 0);
}

/**
 * Return how much of the peak this grouping explains. A file may know the purpose of memory and not its allocations.
 */
export function knownBytes(peak: MemoryPeak, group: PeakGroup): number {
  const listed = (peak[group]?.columns.bytes ?? []).reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0);
  return Math.max(peak.known_bytes ?? 0, listed);
}

export function peakShares(peak: MemoryPeak, group: PeakGroup): PeakShare[] {
  const columns = peak[group]?.columns;
  const rows = (columns?.name ?? []).map((name, row) => ({
    name: name ?? "",
    bytes: columns?.bytes[row] ?? 0,
    allocations: columns?.allocations[row] || null,
    before: false,
  }));
  const rest = (peak.allocated_bytes ?? 0) - knownBytes(peak, group);
  const entries = rest > 0 ? [...rows, { name: "", bytes: rest, allocations: null, before: true }] : rows;
  // Totals that are counted from the profile's start may be smaller than the known live memory.
  const total = Math.max(peak.allocated_bytes ?? 0, knownBytes(peak, group)) || 1;
  return entries.map((entry) => ({ ...entry, share: entry.bytes / total }));
}
