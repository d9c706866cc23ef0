// What is alive at the peak, as shares of all that is allocated then.
import type { MemoryPeak } from "../../api/model";

const PEAK_GROUPS = ["categories", "operators", "modules"] as const;
export type PeakGroup = (typeof PEAK_GROUPS)[number];

export interface PeakShare {
  name: string;
  bytes: number;
  allocations: number | null;
  share: number;
  /** Memory from before the profile: nobody knows what for. */
  before: boolean;
}

export function availableGroups(peak: MemoryPeak): PeakGroup[] {
  return PEAK_GROUPS.filter((group) => (peak[group]?.total_rows ?? 0) > 0);
}

/** How much of the peak this grouping explains. A file may know what memory is for and not which allocations it was. */
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
  // Totals that count from the profile's start may be less than what is known to be alive.
  const total = Math.max(peak.allocated_bytes ?? 0, knownBytes(peak, group)) || 1;
  return entries.map((entry) => ({ ...entry, share: entry.bytes / total }));
}
