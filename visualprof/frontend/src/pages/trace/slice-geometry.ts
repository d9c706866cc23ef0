// Where an entry of a tile stands in pixels. Painting and pointing share these rules, so what is seen is what is hit.
import { TILE_BUCKETS } from "./tile-levels";
import { laneRange, type SliceTile } from "./tile";

/** A tile, or what of a coarser or finer one stands in for it, in device pixels: x = bucket * scale + offset. */
export interface Part {
  tile: SliceTile;
  scale: number;
  offset: number;
  /** Painted from clip0 up to, not including, clip1. */
  clip0: number;
  clip1: number;
}

/** From this width on, the last pixel of an entry is left free, so that neighbours of one colour stay two. */
export const GAP_FROM = 4;

export function leftEdge(part: Part, entry: number): number {
  return Math.floor((part.tile.start[entry] ?? 0) * part.scale + part.offset);
}

/** Never less than one pixel wide. */
export function rightEdge(part: Part, entry: number): number {
  return Math.max(leftEdge(part, entry) + 1, Math.floor((part.tile.end[entry] ?? 0) * part.scale + part.offset));
}

/** Last entry of [first, last) that begins at or before the pixel; first - 1 when there is none. */
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

/** The entry of a lane that is seen at a pixel, or -1. */
export function entryAt(part: Part, lane: number, x: number): number {
  if (x < part.clip0 || x >= part.clip1) return -1;
  const [first, last] = laneRange(part.tile, lane);
  const entry = lastEntryBefore(part, first, last, x);
  return entry >= first && rightEdge(part, entry) > x ? entry : -1;
}

/** Where the bucket ends in which an entry starts: up to there a merged entry is "many", after it its last event. */
export function bucketEnd(part: Part, entry: number): number {
  return Math.floor((Math.floor(part.tile.start[entry] ?? 0) + 1) * part.scale + part.offset);
}

/** Paints a lane's entries into one row of pixels that starts at `base`. */
export function paintRow(pixels: Uint32Array, base: number, part: Part, lane: number): void {
  const { tile, scale, offset, clip0, clip1 } = part;
  const paint = tile.paint;
  const [first, last] = laneRange(tile, lane);
  if (!paint || first === last || clip1 <= clip0) return;
  const { start, end } = tile;
  const { solid, muted } = paint;
  let entry = Math.max(first, lastEntryBefore(part, first, last, clip0));
  for (; entry < last; entry += 1) {
    // The indices are in range: this loop is the hot path, so it asks for no fallbacks.
    const from = start[entry] as number;
    const x0 = Math.floor(from * scale + offset);
    if (x0 >= clip1) break;
    let x1 = Math.floor((end[entry] as number) * scale + offset);
    // What goes on in the next tile has no end here.
    if (x1 - x0 >= GAP_FROM && (end[entry] as number) <= TILE_BUCKETS) x1 -= 1;
    else if (x1 <= x0) x1 = x0 + 1;
    if (x1 > clip1) x1 = clip1;
    let x = x0 < clip0 ? clip0 : x0;
    const color = solid[entry] as number;
    const many = muted[entry] as number;
    if (many !== color) {
      const until = Math.min(x1, Math.max(x0 + 1, Math.floor((Math.floor(from) + 1) * scale + offset)));
      // Pinstripes once there is room for them: this is many events, not one.
      for (; x < until; x += 1) pixels[base + x] = scale >= GAP_FROM && (x & 3) === 0 ? color : many;
    }
    if (x1 - x > 24) pixels.fill(color, base + x, base + x1);
    else for (; x < x1; x += 1) pixels[base + x] = color;
  }
}
