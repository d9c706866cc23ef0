// What a layout is asked and what it answers. Ranks follow each other along y; left-right pictures swap the axes outside.

/** An ordinary item, or the place where an edge enters or leaves the group that is laid out. */
export const INNER = 0;
export const ENTRY = 1;
export const EXIT = 2;

/** How an edge is shown: through the ranks, as a label at its consumer, against the flow, or straight over many ranks. */
export const PLAIN = 0;
export const STUB = 1;
export const BACK = 2;
export const FAR = 3;

export interface Problem {
  width: Float64Array;
  height: Float64Array;
  role: Uint8Array;
  /** Room before an item (part of its width) for the labels of hidden edges; the layout fills it in. */
  room: Float64Array;
  tail: Int32Array;
  head: Int32Array;
  /** Edges of one slot start at one point and share their way. */
  slot: Int32Array;
  /** Where an edge meets its items, from their middle. */
  tailOffset: Float64Array;
  headOffset: Float64Array;
  spacing: Spacing;
}

export interface Spacing {
  /** Between neighbours of a rank. */
  item: number;
  /** Between ranks. */
  rank: number;
  /** Between a passing edge and its neighbours. */
  track: number;
  /** Room that labels of hidden edges take beside an item: of the first, and of each further one. */
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
  /** Points of edge e: x, y pairs from start[e] to start[e + 1]; those before fork[e] another edge of its slot has too. */
  points: Float64Array;
  start: Int32Array;
  fork: Int32Array;
}

/** Labels of hidden edges beyond this many are only counted. */
export const MAX_STUBS = 3;

export function stubRoom(spacing: Spacing, stubs: number): number {
  return stubs === 0 ? 0 : spacing.stub + (Math.min(stubs, MAX_STUBS) - 1) * spacing.stubMore;
}
