// The points of an edge. A straight run is one step, so that long chains cost no more than they show.
import { PLAIN, type Problem } from "./problem";
import type { Segments } from "./segments";

export interface EdgeRoute {
  /** x, y pairs from the tail to the head. */
  points: number[];
  /** Points before this one belong to a longer edge of the same slot. */
  fork: number;
}

interface Placement {
  middle: Float64Array;
  /** Top of each item. */
  y: Float64Array;
  rankTop: Float64Array;
  rankBottom: Float64Array;
}

/** Spread the ends of several edges at one consumer: edges from the left at the left, straight ones in the middle. */
function spread(problem: Problem, placing: Placement, lastX: Float64Array): Float64Array {
  const offset = problem.headOffset.slice();
  const byHead = new Map<number, number[]>();
  for (let e = 0; e < offset.length; e += 1)
    byHead.set(problem.head[e] as number, [...(byHead.get(problem.head[e] as number) ?? []), e]);
  for (const [head, edges] of byHead) {
    if (edges.length < 2 || new Set(edges.map((e) => problem.headOffset[e])).size > 1) continue;
    const base = (placing.middle[head] as number) + (problem.headOffset[edges[0] as number] as number);
    const room = Math.min(0.35 * (problem.width[head] as number), 14 * edges.length);
    const side = (e: number) => (lastX[e] as number) - base;
    const left = edges.filter((e) => side(e) < -1).sort((a, b) => side(b) - side(a));
    const right = edges.filter((e) => side(e) > 1).sort((a, b) => side(a) - side(b));
    const rankCount = Math.max(left.length, right.length);
    const straight = left.length + right.length < edges.length;
    const step = room / Math.max(1, straight ? rankCount : rankCount - 0.5);
    const first = straight ? 1 : 0.5;
    left.forEach((e, i) => (offset[e] = (offset[e] as number) - (i + first) * step));
    right.forEach((e, i) => (offset[e] = (offset[e] as number) + (i + first) * step));
  }
  return offset;
}

function push(points: number[], x: number, y: number): void {
  const n = points.length;
  // Three points on a vertical line are reduced to two.
  if (n >= 4 && points[n - 2] === x && points[n - 4] === x) points[n - 1] = y;
  else if (n < 2 || points[n - 2] !== x || points[n - 1] !== y) points.push(x, y);
}

export function routeEdges(problem: Problem, segments: Segments, kind: Uint8Array, placing: Placement): EdgeRoute[] {
  const { tail, head, slot, tailOffset, height } = problem;
  const { middle, y, rankTop, rankBottom } = placing;
  const edges = tail.length;
  const lastX = Float64Array.from({ length: edges }, (_, e) => {
    const segmentCount = segments.chainLength[e] as number;
    return segmentCount > 0
      ? (middle[(segments.chain[e] as number) + segmentCount - 1] as number)
      : (middle[tail[e] as number] as number) + (tailOffset[e] as number);
  });
  const headOffset = spread(problem, placing, lastX);
  const longest = new Map<number, number>();
  for (let e = 0; e < edges; e += 1) {
    if (kind[e] !== PLAIN) continue;
    const segmentCount = segments.chainLength[e] as number;
    longest.set(slot[e] as number, Math.max(longest.get(slot[e] as number) ?? 0, segmentCount));
  }
  const drawnSlots = new Set<number>();
  return Array.from({ length: edges }, (_, e) => {
    const from = tail[e] as number;
    const to = head[e] as number;
    const key = slot[e] as number;
    const segmentCount = segments.chainLength[e] as number;
    const leads = !drawnSlots.has(key) && segmentCount === (longest.get(key) ?? 0);
    if (leads) drawnSlots.add(key);
    const points: number[] = [];
    let fork = 0;
    const leaves = (middle[from] as number) + (tailOffset[e] as number);
    push(points, leaves, (y[from] as number) + (height[from] as number));
    // Next to a taller neighbor the route is straight; it bends only between the ranks.
    push(points, leaves, rankBottom[segments.rank[from] as number] as number);
    for (let i = 0; i < segmentCount; i += 1) {
      const segment = (segments.chain[e] as number) + i;
      const rank = segments.rank[segment] as number;
      push(points, middle[segment] as number, rankTop[rank] as number);
      push(points, middle[segment] as number, rankBottom[rank] as number);
      fork = points.length / 2 - 1;
    }
    if (segmentCount === 0) fork = points.length / 2 - 1;
    const arrives = (middle[to] as number) + (headOffset[e] as number);
    if (kind[e] === PLAIN) push(points, arrives, rankTop[segments.rank[to] as number] as number);
    push(points, arrives, y[to] as number);
    return { points, fork: leads || kind[e] !== PLAIN ? 0 : Math.min(fork, points.length / 2 - 2) };
  });
}
