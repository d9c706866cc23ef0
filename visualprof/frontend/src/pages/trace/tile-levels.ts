// The tiles for a window: one bucket is at most one device pixel, so that no visible detail is lost.

export const TILE_BUCKETS = 256;
const TOP_LEVEL = 52;

export function tileLevel(nsPerPixel: number): number {
  return Math.max(0, Math.min(TOP_LEVEL, Math.floor(Math.log2(nsPerPixel))));
}

export function tileNs(level: number): number {
  return TILE_BUCKETS * 2 ** level;
}

/** Return the first level at which one tile contains the whole trace. */
export function topLevelFor(durationNs: number): number {
  return Math.max(0, Math.min(TOP_LEVEL, Math.ceil(Math.log2(Math.max(1, durationNs + 1) / TILE_BUCKETS))));
}

/**
 * Return the indexes [first, last] of the tiles that touch [start, end) of a trace; empty (last < first) if outside of
 * it.
 */
export function tilesIn(
  start: number,
  end: number,
  level: number,
  durationNs: number,
): readonly [first: number, last: number] {
  const size = tileNs(level);
  const first = Math.max(0, Math.floor(start / size));
  const last = Math.min(Math.floor(durationNs / size), Math.ceil(end / size) - 1);
  return [first, last];
}
