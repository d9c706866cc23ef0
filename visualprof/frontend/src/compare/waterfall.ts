// A waterfall from the base's step to the new step: each part starts where the previous one ended.
export interface Stage {
  name: string;
  base_ns: number;
  new_ns: number;
  delta_ns: number;
  /** Whether the change exceeds noise; false also if there are too few steps to tell. */
  significant: boolean;
  /** Shares of the step before and after. */
  base_share: number;
  new_share: number;
  /** Start and end of its bar, as shares of the axis. */
  start: number;
  end: number;
}

export interface Waterfall {
  /** Start of the axis, greater than 0 if the change would be too small to see otherwise. */
  floor_ns: number;
  base: number;
  now: number;
  stages: Stage[];
}

export interface Parts {
  part: string[];
  base_ns: number[];
  new_ns: number[];
  delta_ns: number[];
  significant: (boolean | null)[];
}

/** Minimum share of the axis that the changes take. */
const MIN_SHARE = 0.4;
/** Share of the axis for the total in that case. */
const STUB_SHARE = 0.15;

/** The parts of a step, largest regression first. Their changes add up to the step's change. */
export function waterfall(parts: Parts): Waterfall {
  const rows = parts.part
    .map((name, i) => ({
      name,
      base_ns: parts.base_ns[i] ?? 0,
      new_ns: parts.new_ns[i] ?? 0,
      delta_ns: parts.delta_ns[i] ?? 0,
      significant: parts.significant[i] === true,
    }))
    .filter((row) => row.base_ns !== 0 || row.new_ns !== 0)
    .sort((a, b) => b.delta_ns - a.delta_ns);
  const fromNs = rows.reduce((sum, row) => sum + row.base_ns, 0);
  const toNs = rows.reduce((sum, row) => sum + row.new_ns, 0);
  const levels = [fromNs];
  for (const row of rows) levels.push((levels[levels.length - 1] ?? 0) + row.delta_ns);
  const [min, max] = [Math.min(...levels), Math.max(...levels)];
  const visibleSpan = max - min;
  const floorNs =
    visibleSpan > 0 && visibleSpan < MIN_SHARE * max ? Math.max(0, min - (visibleSpan / MIN_SHARE) * STUB_SHARE) : 0;
  const share = (level: number | undefined) => ((level ?? 0) - floorNs) / (max - floorNs || 1);
  return {
    floor_ns: floorNs,
    base: share(fromNs),
    now: share(levels[levels.length - 1]),
    stages: rows.map((row, i) => ({
      ...row,
      base_share: row.base_ns / (fromNs || 1),
      new_share: row.new_ns / (toNs || 1),
      start: share(levels[i]),
      end: share(levels[i + 1]),
    })),
  };
}
