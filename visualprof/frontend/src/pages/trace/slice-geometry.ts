// The pixel range of a tile's entry. Painting and pointing share these rules, so that what is visible can be clicked.
import { TILE_BUCKETS } from "./tile-levels";
import { laneRange, type SliceTile } from "./tile";

/** A tile, or the part of a coarser or finer one that replaces it, in device pixels: x = bucket * scale + offset. */
export interface Part {
  tile: SliceTile;
  scale: number;
  offset: number;
  /** Painted from clip0 up to, not including, clip1. */
  clip0: number;
  clip1: number;
}

/** From this width on, the last pixel of an entry is left free, so that neighbors of the same color stay distinct. */
export const GAP_FROM = 4;

export function leftEdge(part: Part, entry: number): number {
  return Math.floor((part.tile.start[entry] ?? 0) * part.scale + part.offset);
}

/** At least one pixel wide. */
export function rightEdge(part: Part, entry: number): number {
  return Math.max(leftEdge(part, entry) + 1, Math.floor((part.tile.end[entry] ?? 0) * part.scale + part.offset));
}

/** Return the last entry of [first, last) that starts at or before the pixel; first - 1 if there is none. */
export function lastEntryBefore(part: Part, first: number, last: number, x: number): number {
  let low = first;
  let high = last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (leftEdge(part, middle) <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Return the visible entry of a lane at a pixel, or -1. */
export function entryAt(part: Part, lane: number, x: number): number {
  if (x < part.clip0 || x >= part.clip1) return -1;
  const [first, last] = laneRange(part.tile, lane);
  const entry = lastEntryBefore(part, first, last, x);
  return entry >= first && rightEdge(part, entry) > x ? entry : -1;
}

/**
 * Return the end of the bucket in which an entry starts. Up to there, a merged entry is "many", after it its last
 * event.
 */
export function bucketEnd(part: Part, entry: number): number {
  return Math.floor((Math.floor(part.tile.start[entry] ?? 0) + 1) * part.scale + part.offset);
}

/** Paint a lane's entries into one row of pixels that starts at `base`. */
export function paintRow(pixels: Uint32Array, base: number, part: Part, lane: number): void {
  const { tile, scale, offset, clip0, clip1 } = part;
  const paint = tile.paint;
  const [first, last] = laneRange(tile, lane);
  if (!paint || first === last || clip1 <= clip0) return;
  const { start, end } = tile;
  const { solid, muted } = paint;
  let entry = Math.max(first, lastEntryBefore(part, first, last, clip0));
  for (; entry < last; entry += 1) {
    // All indexes are in range. This loop is the hot path, so it has no fallbacks.
    const from = start[entry] as number;
    const x0 = Math.floor(from * scale + offset);
    if (x0 >= clip1) break;
    let x1 = Math.floor((end[entry] as number) * scale + offset);
    // Entries that continue in the next tile have no end here.
    if (x1 - x0 >= GAP_FROM && (end[entry] as number) <= TILE_BUCKETS) x1 -= 1;
    else if (x1 <= x0) x1 = x0 + 1;
    if (x1 > clip1) x1 = clip1;
    let x = x0 < clip0 ? clip0 : x0;
    const color = solid[entry] as number;
    const many = muted[entry] as number;
    if (many !== color) {
      const until = Math.min(x1, Math.max(x0 + 1, Math.floor((Math.floor(from) + 1) * scale + offset)));
      // Stripes if there is room for them: many events, not one.
      for (; x < until; x += 1) pixels[base + x] = scale >= GAP_FROM && (x & 3) === 0 ? color : many;
    }
    if (x1 - x > 24) pixels.fill(color, base + x, base + x1);
    else for (; x < x1; x += 1) pixels[base + x] = color;
  }
}
