// Edges cut at the ranks that they pass: one chain of places per slot, which its consumers branch off.
import { grouped, type Adjacency } from "./adjacency";
import { FAR, PLAIN, type Problem } from "./problem";

/** Longer edges go straight once places get scarce. */
const FAR_RANKS = 60;
const PLACES_PER_ITEM = 3;
const PLACES = 6000;

export interface Segments {
  items: number;
  /** Items first, then the places of passing edges. */
  rank: Int32Array;
  width: Float64Array;
  /** True middle of an item from the middle of the room that it takes. */
  middle: Float64Array;
  /** Segment ends: upper and lower entity, and where they meet them from their middle. */
  upper: Int32Array;
  lower: Int32Array;
  upper_offset: Float64Array;
  lower_offset: Float64Array;
  down: Adjacency;
  up: Adjacency;
  /** First place and number of places of an edge; places follow each other. */
  chain: Int32Array;
  chain_length: Int32Array;
}

function spans_of(problem: Problem, kind: Uint8Array, rank: Int32Array): void {
  const { tail, head, slot } = problem;
  const longest = new Map<number, number>();
  for (let e = 0; e < kind.length; e += 1) {
    if (kind[e] !== PLAIN) continue;
    const span = (rank[head[e] as number] as number) - (rank[tail[e] as number] as number) - 1;
    longest.set(slot[e] as number, Math.max(longest.get(slot[e] as number) ?? 0, span));
  }
  let places = 0;
  for (const span of longest.values()) places += span;
  if (places <= Math.max(PLACES, PLACES_PER_ITEM * rank.length)) return;
  for (let e = 0; e < kind.length; e += 1) {
    if (kind[e] === PLAIN && (rank[head[e] as number] as number) - (rank[tail[e] as number] as number) > FAR_RANKS)
      kind[e] = FAR;
  }
}

/** May turn edges of `kind` into FAR. */
export function segments_of(problem: Problem, kind: Uint8Array, item_rank: Int32Array): Segments {
  spans_of(problem, kind, item_rank);
  const { tail, head, slot, tail_offset, head_offset } = problem;
  const items = item_rank.length;
  const edges = kind.length;
  const chain = new Int32Array(edges).fill(-1);
  const chain_length = new Int32Array(edges);
  const rank: number[] = Array.from(item_rank);
  const upper: number[] = [];
  const lower: number[] = [];
  const upper_offset: number[] = [];
  const lower_offset: number[] = [];
  const join = (a: number, b: number, a_offset: number, b_offset: number) => {
    upper.push(a);
    lower.push(b);
    upper_offset.push(a_offset);
    lower_offset.push(b_offset);
  };
  // Where the chain of a slot begins and how long it is so far; the longest edge comes first.
  const begun = new Map<number, number>();
  const order = Array.from({ length: edges }, (_, e) => e).filter((e) => kind[e] === PLAIN);
  order.sort((a, b) => (item_rank[head[b] as number] as number) - (item_rank[head[a] as number] as number) || a - b);
  for (const e of order) {
    const [from, to] = [tail[e] as number, head[e] as number];
    const [top, bottom] = [item_rank[from] as number, item_rank[to] as number];
    const key = slot[e] as number;
    const places = bottom - top - 1;
    if (places > 0 && !begun.has(key)) {
      begun.set(key, rank.length);
      for (let r = top + 1; r < bottom; r += 1) {
        const place = rank.push(r) - 1;
        join(r === top + 1 ? from : place - 1, place, r === top + 1 ? (tail_offset[e] as number) : 0, 0);
      }
    }
    const first = begun.get(key) ?? -1;
    if (places > 0) {
      chain[e] = first;
      chain_length[e] = places;
      join(first + places - 1, to, 0, head_offset[e] as number);
    } else join(from, to, tail_offset[e] as number, head_offset[e] as number);
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
    upper_offset: Float64Array.from(upper_offset),
    lower_offset: Float64Array.from(lower_offset),
    down: grouped(upper, rank.length),
    up: grouped(lower, rank.length),
    chain,
    chain_length,
  };
}
