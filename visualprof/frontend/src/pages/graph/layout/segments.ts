// Edges are cut at the ranks that they cross: one chain of segments per slot, from which its consumers branch off.
import { groupByKey, type Adjacency } from "./adjacency";
import { FAR, PLAIN, type Problem } from "./problem";

/** Long edges become straight lines once segments are scarce. */
const FAR_RANKS = 60;
const SEGMENTS_PER_ITEM = 3;
const MAX_SEGMENTS = 6000;

export interface Segments {
  items: number;
  /** Items first, then the segments of passing edges. */
  rank: Int32Array;
  width: Float64Array;
  /** Offset of an item's own center from the center of its space. */
  middle: Float64Array;
  /** Segment ends: upper and lower entity, and where the segment meets them, from their centers. */
  upper: Int32Array;
  lower: Int32Array;
  upperOffset: Float64Array;
  lowerOffset: Float64Array;
  down: Adjacency;
  up: Adjacency;
  /** First segment and number of segments of an edge; they are consecutive. */
  chain: Int32Array;
  chainLength: Int32Array;
}

function edgeSpans(problem: Problem, kind: Uint8Array, rank: Int32Array): void {
  const { tail, head, slot } = problem;
  const longest = new Map<number, number>();
  for (let e = 0; e < kind.length; e += 1) {
    if (kind[e] !== PLAIN) continue;
    const span = (rank[head[e] as number] as number) - (rank[tail[e] as number] as number) - 1;
    longest.set(slot[e] as number, Math.max(longest.get(slot[e] as number) ?? 0, span));
  }
  let segmentCount = 0;
  for (const span of longest.values()) segmentCount += span;
  if (segmentCount <= Math.max(MAX_SEGMENTS, SEGMENTS_PER_ITEM * rank.length)) return;
  for (let e = 0; e < kind.length; e += 1) {
    if (kind[e] === PLAIN && (rank[head[e] as number] as number) - (rank[tail[e] as number] as number) > FAR_RANKS)
      kind[e] = FAR;
  }
}

/** May change edges in `kind` to FAR. */
export function cutIntoSegments(problem: Problem, kind: Uint8Array, itemRank: Int32Array): Segments {
  edgeSpans(problem, kind, itemRank);
  const { tail, head, slot, tailOffset, headOffset } = problem;
  const items = itemRank.length;
  const edges = kind.length;
  const chain = new Int32Array(edges).fill(-1);
  const chainLength = new Int32Array(edges);
  const rank: number[] = Array.from(itemRank);
  const upper: number[] = [];
  const lower: number[] = [];
  const upperOffset: number[] = [];
  const lowerOffset: number[] = [];
  const join = (a: number, b: number, aOffset: number, bOffset: number) => {
    upper.push(a);
    lower.push(b);
    upperOffset.push(aOffset);
    lowerOffset.push(bOffset);
  };
  // Start of a slot's chain and its length so far; the longest edge comes first.
  const firstSegment = new Map<number, number>();
  const order = Array.from({ length: edges }, (_, e) => e).filter((e) => kind[e] === PLAIN);
  order.sort((a, b) => (itemRank[head[b] as number] as number) - (itemRank[head[a] as number] as number) || a - b);
  for (const e of order) {
    const [from, to] = [tail[e] as number, head[e] as number];
    const [top, bottom] = [itemRank[from] as number, itemRank[to] as number];
    const key = slot[e] as number;
    const between = bottom - top - 1;
    if (between > 0 && !firstSegment.has(key)) {
      firstSegment.set(key, rank.length);
      for (let r = top + 1; r < bottom; r += 1) {
        const segment = rank.push(r) - 1;
        join(r === top + 1 ? from : segment - 1, segment, r === top + 1 ? (tailOffset[e] as number) : 0, 0);
      }
    }
    const first = firstSegment.get(key) ?? -1;
    if (between > 0) {
      chain[e] = first;
      chainLength[e] = between;
      join(first + between - 1, to, 0, headOffset[e] as number);
    } else join(from, to, tailOffset[e] as number, headOffset[e] as number);
  }
  const width = new Float64Array(rank.length).fill(problem.spacing.track);
  width.set(problem.width);
  return {
    items,
    rank: Int32Array.from(rank),
    width,
    middle: problem.room.map((room) => room / 2),
    upper: Int32Array.from(upper),
    lower: Int32Array.from(lower),
    upperOffset: Float64Array.from(upperOffset),
    lowerOffset: Float64Array.from(lowerOffset),
    down: groupByKey(upper, rank.length),
    up: groupByKey(lower, rank.length),
    chain,
    chainLength,
  };
}
