// The points that an edge passes. Straight runs are one step, so long chains cost what they show.
import { PLAIN, type Problem } from "./problem";
import type { Segments } from "./segments";

export interface Drawn {
  /** x, y pairs from the tail to the head. */
  points: number[];
  /** Points before this one belong to a longer edge of the same slot. */
  fork: number;
}

interface Placing {
  middle: Float64Array;
  /** Top of each item. */
  y: Float64Array;
  rank_top: Float64Array;
  rank_bottom: Float64Array;
}

/** Consumers of several edges are met beside each other: from the left at the left, straight ones in the middle. */
function spread(problem: Problem, placing: Placing, last_x: Float64Array): Float64Array {
  const offset = problem.head_offset.slice();
  const by_head = new Map<number, number[]>();
  for (let e = 0; e < offset.length; e += 1)
    by_head.set(problem.head[e] as number, [...(by_head.get(problem.head[e] as number) ?? []), e]);
  for (const [head, edges] of by_head) {
    if (edges.length < 2 || new Set(edges.map((e) => problem.head_offset[e])).size > 1) continue;
    const base = (placing.middle[head] as number) + (problem.head_offset[edges[0] as number] as number);
    const room = Math.min(0.35 * (problem.width[head] as number), 14 * edges.length);
    const side = (e: number) => (last_x[e] as number) - base;
    const left = edges.filter((e) => side(e) < -1).sort((a, b) => side(b) - side(a));
    const right = edges.filter((e) => side(e) > 1).sort((a, b) => side(a) - side(b));
    const most = Math.max(left.length, right.length);
    const straight = left.length + right.length < edges.length;
    const step = room / Math.max(1, straight ? most : most - 0.5);
    const first = straight ? 1 : 0.5;
    left.forEach((e, i) => (offset[e] = (offset[e] as number) - (i + first) * step));
    right.forEach((e, i) => (offset[e] = (offset[e] as number) + (i + first) * step));
  }
  return offset;
}

function push(points: number[], x: number, y: number): void {
  const n = points.length;
  // Three points on one vertical are two.
  if (n >= 4 && points[n - 2] === x && points[n - 4] === x) points[n - 1] = y;
  else if (n < 2 || points[n - 2] !== x || points[n - 1] !== y) points.push(x, y);
}

export function routes_of(problem: Problem, segments: Segments, kind: Uint8Array, placing: Placing): Drawn[] {
  const { tail, head, slot, tail_offset, height } = problem;
  const { middle, y, rank_top, rank_bottom } = placing;
  const edges = tail.length;
  const last_x = Float64Array.from({ length: edges }, (_, e) => {
    const places = segments.chain_length[e] as number;
    return places > 0
      ? (middle[(segments.chain[e] as number) + places - 1] as number)
      : (middle[tail[e] as number] as number) + (tail_offset[e] as number);
  });
  const head_offset = spread(problem, placing, last_x);
  const longest = new Map<number, number>();
  for (let e = 0; e < edges; e += 1) {
    if (kind[e] !== PLAIN) continue;
    const places = segments.chain_length[e] as number;
    longest.set(slot[e] as number, Math.max(longest.get(slot[e] as number) ?? 0, places));
  }
  const drawn_slots = new Set<number>();
  return Array.from({ length: edges }, (_, e) => {
    const from = tail[e] as number;
    const to = head[e] as number;
    const key = slot[e] as number;
    const places = segments.chain_length[e] as number;
    const leads = !drawn_slots.has(key) && places === (longest.get(key) ?? 0);
    if (leads) drawn_slots.add(key);
    const points: number[] = [];
    let fork = 0;
    const leaves = (middle[from] as number) + (tail_offset[e] as number);
    push(points, leaves, (y[from] as number) + (height[from] as number));
    // Beside a taller neighbour the way is straight: it bends between the ranks only.
    push(points, leaves, rank_bottom[segments.rank[from] as number] as number);
    for (let i = 0; i < places; i += 1) {
      const place = (segments.chain[e] as number) + i;
      const rank = segments.rank[place] as number;
      push(points, middle[place] as number, rank_top[rank] as number);
      push(points, middle[place] as number, rank_bottom[rank] as number);
      fork = points.length / 2 - 1;
    }
    if (places === 0) fork = points.length / 2 - 1;
    const arrives = (middle[to] as number) + (head_offset[e] as number);
    if (kind[e] === PLAIN) push(points, arrives, rank_top[segments.rank[to] as number] as number);
    push(points, arrives, y[to] as number);
    return { points, fork: leads || kind[e] !== PLAIN ? 0 : Math.min(fork, points.length / 2 - 2) };
  });
}
