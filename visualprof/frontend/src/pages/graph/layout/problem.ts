// Input and output of a layout. Ranks follow each other along y; for left-to-right pictures the caller swaps the axes.

/** An ordinary item, or the point where an edge enters or leaves the group. */
export const INNER = 0;
export const ENTRY = 1;
export const EXIT = 2;

/**
 * How an edge is drawn: through the ranks, as a label at its consumer, against the flow, or straight over many ranks.
 */
export const PLAIN = 0;
export const STUB = 1;
export const BACK = 2;
export const FAR = 3;

export interface Problem {
  width: Float64Array;
  height: Float64Array;
  role: Uint8Array;
  /** Space before an item (part of its width) for the labels of hidden edges; set by the layout. */
  room: Float64Array;
  tail: Int32Array;
  head: Int32Array;
  /** Edges of one slot start at one point and share their route. */
  slot: Int32Array;
  /** Where an edge meets its items, from their centers. */
  tailOffset: Float64Array;
  headOffset: Float64Array;
  spacing: Spacing;
}

export interface Spacing {
  /** Between neighbors of a rank. */
  item: number;
  /** Between ranks. */
  rank: number;
  /** Between a passing edge and its neighbors. */
  track: number;
  /** Space for labels of hidden edges next to an item: for the first, and for each further one. */
  stub: number;
  stubMore: number;
}

export interface Solution {
  width: number;
  height: number;
  /** Upper left corners. */
  x: Float64Array;
  y: Float64Array;
  kind: Uint8Array;
  /**
   * Points of edge e: x, y pairs from start[e] to start[e + 1]. Points before fork[e] are shared with another edge of
   * its slot.
   */
  points: Float64Array;
  start: Int32Array;
  fork: Int32Array;
}

/** Further labels of hidden edges are only counted. */
export const MAX_STUBS = 3;

export function stubRoom(spacing: Spacing, stubs: number): number {
  return stubs === 0 ? 0 : spacing.stub + (Math.min(stubs, MAX_STUBS) - 1) * spacing.stubMore;
}
