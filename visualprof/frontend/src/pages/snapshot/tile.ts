// A tile of stacked allocations: where its blocks are drawn, and what is at a point.
import type { HeapTile } from "../../api";

export const TILE_BUCKETS = 256;

export interface Tile {
  level: number;
  index: number;
  firstEntry: number;
  bucketEntries: number;
  /** The entry that each bucket shows: the one with most requested bytes. */
  entry: readonly number[];
  timeNs: readonly number[] | null;
  categories: readonly string[];
  /** Requested bytes of each category in each bucket. */
  bands: readonly (readonly number[])[];
  allocated: readonly number[];
  reserved: readonly number[];
  blocks: readonly TileBlock[];
}

export interface TileBlock {
  block: number;
  category: number;
  bytes: number;
  firstBucket: number;
  lastBucket: number;
  name: string;
}

/** Consecutive buckets in which a block has the same place. */
export interface Run {
  row: TileBlock;
  first: number;
  last: number;
  bottom: number;
}

export function decodeTile(answer: HeapTile, level: number, index: number): Tile {
  const columns = answer.blocks.columns;
  const numbers = (column: (string | number | null)[]) => column as number[];
  const [block, category, bytes] = [numbers(columns.block), numbers(columns.category), numbers(columns.bytes)];
  const [first, last, name] = [numbers(columns.first_bucket), numbers(columns.last_bucket), numbers(columns.name)];
  return {
    level,
    index,
    firstEntry: answer.first_entry,
    bucketEntries: answer.bucket_entries,
    entry: answer.entry,
    timeNs: answer.time_ns,
    categories: answer.categories,
    bands: answer.bands,
    allocated: answer.allocated_bytes,
    reserved: answer.reserved_bytes,
    blocks: block.map((id, row) => ({
      block: id,
      category: category[row] ?? 0,
      bytes: bytes[row] ?? 0,
      firstBucket: first[row] ?? 0,
      lastBucket: last[row] ?? 0,
      name: answer.names[name[row] ?? -1] ?? "",
    })),
  };
}

/** Return the level whose buckets are one to two pixels wide, if there is one. */
export function levelOf(entries: number, widthPx: number, finestLevel: number, maxLevel: number): number {
  return Math.max(finestLevel, Math.min(maxLevel, Math.ceil(Math.log2(entries / Math.max(widthPx, 1)))));
}

/** Return the numbers of the tiles that show a range of entries. */
export function tilesOf(level: number, from: number, to: number, entries: number): number[] {
  const wide = TILE_BUCKETS * 2 ** level;
  const first = Math.max(0, Math.floor(from / wide));
  const last = Math.floor(Math.min(Math.max(to, 0), entries - 1) / wide);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
}

/** Return the bytes below each category in each bucket. */
function bottomsOf(tile: Tile): Float64Array[] {
  const bottoms: Float64Array[] = [];
  const sum = new Float64Array(tile.entry.length);
  for (const band of tile.bands) {
    bottoms.push(sum.slice());
    band.forEach((bytes, bucket) => (sum[bucket] = (sum[bucket] ?? 0) + bytes));
  }
  return bottoms;
}

/** Call `draw` for each run of each block, from the bottom of its category upwards. */
export function forEachRun(tile: Tile, draw: (run: Run) => void): void {
  const bottoms = bottomsOf(tile);
  for (const row of tile.blocks) {
    const heights = bottoms[row.category];
    if (!heights) continue;
    let first = row.firstBucket;
    for (let bucket = row.firstBucket; bucket <= row.lastBucket; bucket += 1) {
      const bottom = heights[bucket] ?? 0;
      if (bucket === row.lastBucket || heights[bucket + 1] !== bottom) {
        draw({ row, first, last: bucket, bottom });
        first = bucket + 1;
      }
    }
    for (let bucket = row.firstBucket; bucket <= row.lastBucket; bucket += 1)
      heights[bucket] = (heights[bucket] ?? 0) + row.bytes;
  }
}

export function bucketAt(tile: Tile, entry: number): number {
  return Math.max(0, Math.min(tile.entry.length - 1, Math.floor((entry - tile.firstEntry) / tile.bucketEntries)));
}

/** What a bucket shows at a height in bytes. */
export interface Hit {
  entry: number;
  timeNs: number | null;
  requested: number;
  allocated: number;
  reserved: number;
  category: string | null;
  block: TileBlock | null;
}

export function hitTile(tile: Tile, entry: number, bytes: number): Hit {
  const bucket = bucketAt(tile, entry);
  let bottom = 0;
  let category = -1;
  let requested = 0;
  tile.bands.forEach((band, index) => {
    const size = band[bucket] ?? 0;
    if (category < 0 && bytes >= requested && bytes < requested + size) [category, bottom] = [index, requested];
    requested += size;
  });
  let block: TileBlock | null = null;
  for (const row of tile.blocks) {
    if (row.category !== category || bucket < row.firstBucket || bucket > row.lastBucket) continue;
    if (bytes < bottom + row.bytes) {
      block = row;
      break;
    }
    bottom += row.bytes;
  }
  return {
    entry: tile.entry[bucket] ?? 0,
    timeNs: tile.timeNs?.[bucket] ?? null,
    requested,
    allocated: tile.allocated[bucket] ?? 0,
    reserved: tile.reserved[bucket] ?? 0,
    category: tile.categories[category] ?? null,
    block,
  };
}

/** Return the highest sum of the bands. */
export function highestBytes(tile: Tile): number {
  return tile.entry.reduce(
    (highest, _, bucket) =>
      Math.max(
        highest,
        tile.bands.reduce((sum, band) => sum + (band[bucket] ?? 0), 0),
      ),
    0,
  );
}
