// The order within each rank: barycenter sweeps from a depth-first start; the best order is kept.
import type { Segments } from "./segments";

const SWEEPS = 8;
/** Exchanging neighbors is worthwhile only in pictures small enough to follow single edges. */
const MAX_EXCHANGED = 4000;

export interface Order {
  layers: Int32Array[];
  /** Position of each entity in its rank. */
  position: Int32Array;
}

function walk(segments: Segments, ranks: number): Order {
  const { rank, down, lower } = segments;
  const count = rank.length;
  const lists: number[][] = Array.from({ length: ranks }, () => []);
  const position = new Int32Array(count).fill(-1);
  const path: number[] = [];
  const byRank = Array.from({ length: count }, (_, v) => v).sort(
    (a, b) => (rank[a] as number) - (rank[b] as number) || a - b,
  );
  for (const first of byRank) {
    if (position[first] !== -1) continue;
    path.push(first);
    while (path.length > 0) {
      const v = path.pop() as number;
      if (position[v] !== -1) continue;
      position[v] = (lists[rank[v] as number] as number[]).push(v) - 1;
      for (let p = (down.start[v + 1] as number) - 1; p >= (down.start[v] as number); p -= 1)
        path.push(lower[down.list[p] as number] as number);
    }
  }
  return { layers: lists.map((list) => Int32Array.from(list)), position };
}

/** Return where a segment meets entity v, as a position. The ports of a wide item are next to each other. */
function positionOf(segments: Segments, position: Int32Array, v: number, offset: number): number {
  return (position[v] as number) + (0.9 * offset) / Math.max(1, segments.width[v] as number);
}

function assignPositions(layer: Int32Array, key: Float64Array, position: Int32Array): void {
  // Entities without neighbors keep their positions; the others share the rest in order.
  const free: number[] = [];
  const moved: number[] = [];
  for (let i = 0; i < layer.length; i += 1) {
    const v = layer[i] as number;
    if (Number.isNaN(key[v] as number)) continue;
    free.push(i);
    moved.push(v);
  }
  moved.sort((a, b) => (key[a] as number) - (key[b] as number) || (position[a] as number) - (position[b] as number));
  for (let i = 0; i < free.length; i += 1) layer[free[i] as number] = moved[i] as number;
  for (let i = 0; i < layer.length; i += 1) position[layer[i] as number] = i;
}

function sweep(segments: Segments, order: Order, downwards: boolean, key: Float64Array): void {
  const { up, down, upper, lower, upperOffset, lowerOffset } = segments;
  const position = downwards ? up : down;
  const other = downwards ? upper : lower;
  const offset = downwards ? upperOffset : lowerOffset;
  const neighbors = downwards ? lowerOffset : upperOffset;
  const { layers, position: ownOffset } = order;
  for (let i = 1; i < layers.length; i += 1) {
    const layer = layers[downwards ? i : layers.length - 1 - i] as Int32Array;
    for (const v of layer) {
      let sum = 0;
      const from = position.start[v] as number;
      const to = position.start[v + 1] as number;
      for (let p = from; p < to; p += 1) {
        const s = position.list[p] as number;
        sum +=
          positionOf(segments, ownOffset, other[s] as number, offset[s] as number) -
          (0.9 * (neighbors[s] as number)) / Math.max(1, segments.width[v] as number);
      }
      key[v] = to > from ? sum / (to - from) : NaN;
    }
    assignPositions(layer, key, ownOffset);
  }
}

/** Return the ends of the segments below a rank, in the order of their starts. */
function endsBelow(segments: Segments, order: Order, layer: Int32Array): number[] {
  const { down, lower, upperOffset, lowerOffset } = segments;
  const ends: number[] = [];
  const end = (s: number) => positionOf(segments, order.position, lower[s] as number, lowerOffset[s] as number);
  for (const v of layer) {
    const edges = down.list.subarray(down.start[v], down.start[v + 1]);
    const sorted =
      edges.length > 1
        ? edges.slice().sort((a, b) => (upperOffset[a] as number) - (upperOffset[b] as number) || end(a) - end(b))
        : edges;
    for (const s of sorted) ends.push(end(s));
  }
  return ends;
}

/** Count the pairs in the wrong order with a tree of counts over the sorted values. */
function inversions(values: readonly number[]): number {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const index = new Map(sorted.map((value, i) => [value, i + 1]));
  const tree = new Int32Array(sorted.length + 1);
  let crossings = 0;
  values.forEach((value, position) => {
    const at = index.get(value) as number;
    let below = 0;
    for (let i = at; i > 0; i -= i & -i) below += tree[i] as number;
    crossings += position - below;
    for (let i = at; i <= sorted.length; i += i & -i) tree[i] = (tree[i] as number) + 1;
  });
  return crossings;
}

function countCrossings(segments: Segments, order: Order): number {
  let total = 0;
  for (let r = 0; r + 1 < order.layers.length; r += 1) {
    const ends = endsBelow(segments, order, order.layers[r] as Int32Array);
    if (ends.length > 1) total += inversions(ends);
  }
  return total;
}

function sortedPositions(segments: Segments, order: Order, v: number, upwards: boolean): number[] {
  const neighbors = upwards ? segments.up : segments.down;
  const other = upwards ? segments.upper : segments.lower;
  const offset = upwards ? segments.upperOffset : segments.lowerOffset;
  const out: number[] = [];
  for (let p = neighbors.start[v] as number; p < (neighbors.start[v + 1] as number); p += 1) {
    const s = neighbors.list[p] as number;
    out.push(positionOf(segments, order.position, other[s] as number, offset[s] as number));
  }
  return out.sort((a, b) => a - b);
}

/** Count the crossings between the edges of a and b if a is left of b. */
function pairCrossings(left: readonly number[], right: readonly number[]): number {
  let crossings = 0;
  let j = 0;
  for (const spotOfLeft of left) {
    while (j < right.length && (right[j] as number) < spotOfLeft) j += 1;
    crossings += j;
  }
  return crossings;
}

function exchange(segments: Segments, order: Order): void {
  for (const layer of order.layers) {
    for (let i = 0; i + 1 < layer.length; i += 1) {
      const [a, b] = [layer[i] as number, layer[i + 1] as number];
      let gain = 0;
      for (const upwards of [true, false]) {
        const [ofA, ofB] = [sortedPositions(segments, order, a, upwards), sortedPositions(segments, order, b, upwards)];
        gain += pairCrossings(ofA, ofB) - pairCrossings(ofB, ofA);
      }
      if (gain <= 0) continue;
      layer[i] = b;
      layer[i + 1] = a;
      order.position[b] = i;
      order.position[a] = i + 1;
    }
  }
}

function copy(order: Order): Order {
  return { layers: order.layers.map((layer) => layer.slice()), position: order.position.slice() };
}

export function orderRanks(segments: Segments): Order {
  let ranks = 0;
  for (const r of segments.rank) ranks = Math.max(ranks, r + 1);
  const order = walk(segments, ranks);
  let best = copy(order);
  let fewest = countCrossings(segments, order);
  const key = new Float64Array(segments.rank.length);
  const small = segments.upper.length <= MAX_EXCHANGED;
  for (let i = 0; i < SWEEPS && fewest > 0; i += 1) {
    sweep(segments, order, i % 2 === 0, key);
    if (small) exchange(segments, order);
    const crossings = countCrossings(segments, order);
    if (crossings < fewest) {
      fewest = crossings;
      best = copy(order);
    }
  }
  return best;
}
