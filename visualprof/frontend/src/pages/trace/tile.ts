// Binary tiles as typed arrays over the answer's own bytes, without copies or an object per event.

const SLICES = 0x31545056;
const COUNTER = 0x31435056;

/** Entries by (lane, start). `start` and `end` are in buckets from the tile's start. */
export interface SliceTile {
  kind: "slices";
  level: number;
  index: number;
  bytes: number;
  start: Float32Array;
  end: Float32Array;
  event: Uint32Array;
  name: Uint32Array;
  count: Uint32Array;
  category: Uint8Array;
  /** Entries of lane l are laneFirst[l] .. laneFirst[l + 1]. */
  laneFirst: Uint32Array;
  paint: TilePaint | null;
}

/** Colors of a tile's entries for one style. */
interface TilePaint {
  look: number;
  solid: Uint32Array;
  /** For a bucket in which several events start; equal to `solid` for a single event. */
  muted: Uint32Array;
}

export interface CounterTile {
  kind: "counter";
  level: number;
  index: number;
  bytes: number;
  /** The value before the tile, or NaN. */
  before: number;
  bucket: Float32Array;
  low: Float32Array;
  high: Float32Array;
  last: Float32Array;
}

export type Tile = SliceTile | CounterTile;

function laneSlices(lane: Uint16Array): Uint32Array {
  const lanes = lane.length > 0 ? (lane[lane.length - 1] ?? 0) + 1 : 0;
  const first = new Uint32Array(lanes + 1);
  for (let i = 0; i < lane.length; i += 1) {
    const next = (lane[i] ?? 0) + 1;
    first[next] = (first[next] ?? 0) + 1;
  }
  for (let l = 0; l < lanes; l += 1) first[l + 1] = (first[l + 1] ?? 0) + (first[l] ?? 0);
  return first;
}

/** Throws `RangeError` if the bytes are not a tile. */
export function decodeTile(buffer: ArrayBuffer, level: number, index: number): Tile {
  const head = new Uint32Array(buffer, 0, 2);
  const n = head[1] ?? 0;
  if (head[0] === SLICES) {
    const at = (column: number) => 8 + 4 * n * column;
    const laneBytes = 2 * n + ((2 * n) % 4);
    return {
      kind: "slices",
      level,
      index,
      bytes: buffer.byteLength,
      start: new Float32Array(buffer, at(0), n),
      end: new Float32Array(buffer, at(1), n),
      event: new Uint32Array(buffer, at(2), n),
      name: new Uint32Array(buffer, at(3), n),
      count: new Uint32Array(buffer, at(4), n),
      laneFirst: laneSlices(new Uint16Array(buffer, at(5), n)),
      category: new Uint8Array(buffer, at(5) + laneBytes, n),
      paint: null,
    };
  }
  if (head[0] === COUNTER) {
    const column = (index: number) => new Float32Array(buffer, 16 + 4 * n * index, n);
    const before = new Float32Array(buffer, 8, 1)[0] ?? NaN;
    return {
      kind: "counter",
      level,
      index,
      bytes: buffer.byteLength,
      before,
      bucket: column(0),
      low: column(1),
      high: column(2),
      last: column(3),
    };
  }
  throw new RangeError("not a tile");
}

/** Return the memory size of a tile in bytes, including its colors. */
export function tileWeight(tile: Tile): number {
  return tile.bytes + 200 + (tile.kind === "slices" ? 8 * tile.start.length + 4 * tile.laneFirst.length : 0);
}

/** Return the entries of a lane as [first, last). */
export function laneRange(tile: SliceTile, lane: number): readonly [first: number, last: number] {
  return lane + 1 < tile.laneFirst.length ? [tile.laneFirst[lane] ?? 0, tile.laneFirst[lane + 1] ?? 0] : [0, 0];
}
