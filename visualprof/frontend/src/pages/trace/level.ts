// Which tiles a window needs: one bucket is at most one device pixel, so nothing visible is lost.

export const TILE_BUCKETS = 256;
const TOP_LEVEL = 52;

export function level_of(ns_per_pixel: number): number {
  return Math.max(0, Math.min(TOP_LEVEL, Math.floor(Math.log2(ns_per_pixel))));
}

export function tile_ns(level: number): number {
  return TILE_BUCKETS * 2 ** level;
}

/** The first level at which a single tile holds the whole trace. */
export function whole_level(duration_ns: number): number {
  return Math.max(0, Math.min(TOP_LEVEL, Math.ceil(Math.log2(Math.max(1, duration_ns + 1) / TILE_BUCKETS))));
}

/** Indices [first, last] of the tiles that touch [start, end) of a trace; empty (last < first) when outside of it. */
export function tiles_in(
  start: number,
  end: number,
  level: number,
  duration_ns: number,
): readonly [first: number, last: number] {
  const size = tile_ns(level);
  const first = Math.max(0, Math.floor(start / size));
  const last = Math.min(Math.floor(duration_ns / size), Math.ceil(end / size) - 1);
  return [first, last];
}
