// Tiles as the server writes them, for tests.
import { decodeTile, type SliceTile } from "../src/pages/trace/tile";

export interface Made {
  start: number;
  end: number;
  lane?: number;
  count?: number;
  event?: number;
  name?: number;
  category?: number;
}

/** Entries must be in order of (lane, start). */
export function sliceBytes(entries: readonly Made[]): ArrayBuffer {
  const n = entries.length;
  const lanes = 2 * n + ((2 * n) % 4);
  const buffer = new ArrayBuffer(8 + 20 * n + lanes + n + ((4 - (n % 4)) % 4));
  new Uint32Array(buffer, 0, 2).set([0x31545056, n]);
  const put = (column: number, values: readonly number[], kind: typeof Float32Array | typeof Uint32Array) =>
    new kind(buffer, 8 + 4 * n * column, n).set(values);
  put(
    0,
    entries.map((entry) => entry.start),
    Float32Array,
  );
  put(
    1,
    entries.map((entry) => entry.end),
    Float32Array,
  );
  put(
    2,
    entries.map((entry, index) => entry.event ?? index),
    Uint32Array,
  );
  put(
    3,
    entries.map((entry) => entry.name ?? 0),
    Uint32Array,
  );
  put(
    4,
    entries.map((entry) => entry.count ?? 1),
    Uint32Array,
  );
  new Uint16Array(buffer, 8 + 20 * n, n).set(entries.map((entry) => entry.lane ?? 0));
  new Uint8Array(buffer, 8 + 20 * n + lanes, n).set(entries.map((entry) => entry.category ?? 0));
  return buffer;
}

export function sliceTile(entries: readonly Made[], level = 0, index = 0): SliceTile {
  return decodeTile(sliceBytes(entries), level, index) as SliceTile;
}

export function counterBytes(
  before: number,
  samples: readonly (readonly [bucket: number, low: number, high: number, last: number])[],
): ArrayBuffer {
  const n = samples.length;
  const buffer = new ArrayBuffer(16 + 16 * n);
  new Uint32Array(buffer, 0, 2).set([0x31435056, n]);
  new Float32Array(buffer, 8, 1)[0] = before;
  for (let column = 0; column < 4; column += 1)
    new Float32Array(buffer, 16 + 4 * n * column, n).set(samples.map((sample) => sample[column] ?? 0));
  return buffer;
}

/** Repeatable noise: mulberry32. */
export function noise(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A lane of `count` events that do not overlap, in 256 buckets. */
export function randomLane(random: () => number, count: number, lane = 0): Made[] {
  const edges = Array.from({ length: 2 * count }, () => Math.fround(random() * 256)).sort((a, b) => a - b);
  return Array.from({ length: count }, (_, index) => ({
    start: edges[2 * index] ?? 0,
    end: edges[2 * index + 1] ?? 0,
    lane,
    event: lane * 10_000 + index,
    count: random() < 0.3 ? 3 : 1,
    name: index % 7,
  }));
}
