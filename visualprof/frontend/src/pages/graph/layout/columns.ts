// Assigns positions across the ranks (Brandes and Köpf 2002, with sizes and ports). Entities that can be aligned
// vertically form columns, in four directions; the columns are packed, and each entity takes the median of its four
// positions.
import type { Order } from "./order";
import type { Segments } from "./segments";
import type { Spacing } from "./problem";

/** How much wider a picture may become for a straight main path. */
const MAX_DRIFT = 1.3;

/** Mark the segments that cross a passing edge. They give way, so that passing edges stay straight. */
function findConflicts(segments: Segments, order: Order): Uint8Array {
  const { up, upper, items } = segments;
  const { layers, position: position } = order;
  const yields = new Uint8Array(upper.length);
  for (let r = 1; r < layers.length; r += 1) {
    const layer = layers[r] as Int32Array;
    const last = (layers[r - 1] as Int32Array).length - 1;
    let left = 0;
    let done = 0;
    for (let i = 0; i < layer.length; i += 1) {
      const v = layer[i] as number;
      const above = v >= items ? (upper[up.list[up.start[v] as number] as number] as number) : -1;
      const passing = above >= items;
      if (!passing && i < layer.length - 1) continue;
      const right = passing ? (position[above] as number) : last;
      for (; done <= i; done += 1) {
        const w = layer[done] as number;
        for (let p = up.start[w] as number; p < (up.start[w + 1] as number); p += 1) {
          const s = up.list[p] as number;
          const at = position[upper[s] as number] as number;
          if ((at < left || at > right) && !(w >= items && (upper[s] as number) >= items)) yields[s] = 1;
        }
      }
      left = right;
    }
  }
  return yields;
}

/**
 * If a box has another box next to it on its path, that is the main path. Edges that only pass give it the straight
 * position.
 */
function markSideWays(segments: Segments, yields: Uint8Array): void {
  const { upper, lower, items } = segments;
  const feeds = new Uint8Array(items);
  const isFed = new Uint8Array(items);
  for (let s = 0; s < upper.length; s += 1) {
    const [a, b] = [upper[s] as number, lower[s] as number];
    if (a < items && b < items) feeds[a] = isFed[b] = 1;
  }
  for (let s = 0; s < upper.length; s += 1) {
    const [a, b] = [upper[s] as number, lower[s] as number];
    if (a < items && b >= items && feeds[a]) yields[s] = 1;
    if (a >= items && b < items && isFed[b]) yields[s] = 1;
  }
}

interface Columns {
  root: Int32Array;
  /** From the root's center. */
  shift: Float64Array;
}

function align(segments: Segments, order: Order, yields: Uint8Array, downwards: boolean, side: 1 | -1): Columns {
  const neighbors = downwards ? segments.up : segments.down;
  const other = downwards ? segments.upper : segments.lower;
  const atOther = downwards ? segments.upperOffset : segments.lowerOffset;
  const atOwn = downwards ? segments.lowerOffset : segments.upperOffset;
  const { layers, position: position } = order;
  const count = segments.rank.length;
  const root = Int32Array.from({ length: count }, (_, v) => v);
  const shift = new Float64Array(count);
  const isAligned = new Uint8Array(count);
  for (let i = 1; i < layers.length; i += 1) {
    const layer = layers[downwards ? i : layers.length - 1 - i] as Int32Array;
    let border = -1;
    for (let j = 0; j < layer.length; j += 1) {
      const v = layer[j] as number;
      const from = neighbors.start[v] as number;
      let edges = neighbors.list.subarray(from, neighbors.start[v + 1]);
      if (edges.length > 1) edges = edges.filter((s) => !yields[s]);
      const degree = edges.length;
      if (degree === 0) continue;
      if (degree > 1)
        edges = edges
          .slice()
          .sort(
            (a, b) =>
              (position[other[a] as number] as number) - (position[other[b] as number] as number) ||
              (atOther[a] as number) - (atOther[b] as number),
          );
      const low = (degree - 1) >> 1;
      const high = degree >> 1;
      for (const middle of [low, high]) {
        const s = edges[middle] as number;
        const u = other[s] as number;
        const at = position[u] as number;
        if (yields[s] || isAligned[u] || at <= border) continue;
        isAligned[u] = 1;
        root[v] = root[u] as number;
        // Two boxes are aligned at their centers even if their edge starts and ends elsewhere; otherwise consecutive
        // open groups would drift sideways. Passing edges start straight below their port.
        const boxes = u < segments.items && v < segments.items;
        shift[v] =
          (shift[u] as number) +
          (boxes
            ? side * ((segments.middle[u] as number) - (segments.middle[v] as number))
            : (atOther[s] as number) - (atOwn[s] as number));
        border = at;
        break;
      }
    }
  }
  return { root, shift };
}

/**
 * Move columns as far left as their left neighbors allow, then as far right as the width allows, so that no column is
 * far from its neighbors.
 */
function pack(segments: Segments, order: Order, { root, shift }: Columns, spacing: Spacing): Float64Array {
  const { width, items } = segments;
  const count = width.length;
  const from: number[] = [];
  const to: number[] = [];
  const conflicts: number[] = [];
  const waiting = new Int32Array(count);
  for (const layer of order.layers) {
    for (let i = 1; i < layer.length; i += 1) {
      const [u, v] = [layer[i - 1] as number, layer[i] as number];
      const gap = u >= items || v >= items ? spacing.track : spacing.item;
      from.push(root[u] as number);
      to.push(root[v] as number);
      conflicts.push(
        ((width[u] as number) + (width[v] as number)) / 2 + gap + (shift[u] as number) - (shift[v] as number),
      );
      waiting[root[v] as number] = (waiting[root[v] as number] as number) + 1;
    }
  }
  const first = new Int32Array(count).fill(-1);
  const next = new Int32Array(from.length);
  for (let e = from.length - 1; e >= 0; e -= 1) {
    next[e] = first[from[e] as number] as number;
    first[from[e] as number] = e;
  }
  const x = new Float64Array(count);
  const done: number[] = [];
  for (let v = 0; v < count; v += 1) if (root[v] === v && waiting[v] === 0) done.push(v);
  for (let i = 0; i < done.length; i += 1) {
    const u = done[i] as number;
    for (let e = first[u] as number; e !== -1; e = next[e] as number) {
      const v = to[e] as number;
      x[v] = Math.max(x[v] as number, (x[u] as number) + (conflicts[e] as number));
      waiting[v] = (waiting[v] as number) - 1;
      if (waiting[v] === 0) done.push(v);
    }
  }
  for (let i = done.length - 1; i >= 0; i -= 1) {
    const u = done[i] as number;
    let room = Infinity;
    for (let e = first[u] as number; e !== -1; e = next[e] as number)
      room = Math.min(room, (x[to[e] as number] as number) - (conflicts[e] as number));
    if (room !== Infinity) x[u] = Math.max(x[u] as number, room);
  }
  return Float64Array.from({ length: count }, (_, v) => (x[root[v] as number] as number) + (shift[v] as number));
}

function mirrored(segments: Segments, order: Order): [Segments, Order] {
  const position = order.position.slice();
  const layers = order.layers.map((layer) => {
    const turned = layer.slice().reverse();
    for (let i = 0; i < turned.length; i += 1) position[turned[i] as number] = i;
    return turned;
  });
  return [
    {
      ...segments,
      upperOffset: segments.upperOffset.map((offset) => -offset),
      lowerOffset: segments.lowerOffset.map((offset) => -offset),
    },
    { layers, position },
  ];
}

interface Alignment {
  x: Float64Array;
  width: number;
}

/** Return the centers of all entities. */
export function assignColumns(segments: Segments, order: Order, spacing: Spacing): Float64Array {
  const yields = findConflicts(segments, order);
  const plain = alignBlocks(segments, order, spacing, yields);
  const yielding = yields.slice();
  markSideWays(segments, yielding);
  const straight = alignBlocks(segments, order, spacing, yielding);
  // A straight main path may drift sideways over hundreds of ranks; passing edges then limit it.
  return straight.width <= MAX_DRIFT * plain.width ? straight.x : plain.x;
}

function alignBlocks(segments: Segments, order: Order, spacing: Spacing, yields: Uint8Array): Alignment {
  const count = segments.rank.length;
  const answers: { x: Float64Array; low: number; high: number; leftwards: boolean }[] = [];
  for (const leftwards of [true, false]) {
    const [segmentsSeen, arranged] = leftwards ? [segments, order] : mirrored(segments, order);
    for (const downwards of [true, false]) {
      const x = pack(
        segmentsSeen,
        arranged,
        align(segmentsSeen, arranged, yields, downwards, leftwards ? 1 : -1),
        spacing,
      );
      if (!leftwards) for (let v = 0; v < count; v += 1) x[v] = -(x[v] as number);
      let low = Infinity;
      let high = -Infinity;
      for (let v = 0; v < count; v += 1) {
        low = Math.min(low, (x[v] as number) - (segments.width[v] as number) / 2);
        high = Math.max(high, (x[v] as number) + (segments.width[v] as number) / 2);
      }
      answers.push({ x, low, high, leftwards });
    }
  }
  const narrow = answers.reduce((best, candidate) =>
    candidate.high - candidate.low < best.high - best.low ? candidate : best,
  );
  const moves = answers.map((candidate) =>
    candidate.leftwards ? narrow.low - candidate.low : narrow.high - candidate.high,
  );
  const four = new Float64Array(4);
  let [low, high] = [Infinity, -Infinity];
  const x = Float64Array.from({ length: count }, (_, v) => {
    for (let i = 0; i < 4; i += 1)
      four[i] = ((answers[i] as { x: Float64Array }).x[v] as number) + (moves[i] as number);
    four.sort();
    const middle = ((four[1] as number) + (four[2] as number)) / 2;
    low = Math.min(low, middle - (segments.width[v] as number) / 2);
    high = Math.max(high, middle + (segments.width[v] as number) / 2);
    return middle;
  });
  return { x, width: high - low };
}
