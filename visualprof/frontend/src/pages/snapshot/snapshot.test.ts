import { describe, expect, it } from "vitest";
import type { HeapMap, HeapTile } from "../../api";
import { formatWindow, limitWindow, moveWindow, parseWindow, zoomWindow } from "./entry-window";
import { findPiece, forEachBox, groupSegments, HEAD_PX, layOutMap, LINE_PX } from "./segment-layout";
import { splitStack } from "./stack-text";
import { roundStep } from "./stacked-stage";
import { decodeTile, forEachRun, highestBytes, hitTile, levelOf, tilesOf, type Run } from "./tile";

/** Two categories in four buckets of two entries: block 7 (10 B), then block 8 (5 B) of category 1 above 3 B of 0. */
const ANSWER = {
  first_entry: 100,
  bucket_entries: 2,
  entry: [100, 103, 104, 106],
  time_ns: [0, 30, 40, 60],
  categories: ["unknown", "activation"],
  bands: [
    [0, 3, 3, 0],
    [10, 15, 16, 5],
  ],
  allocated_bytes: [10, 18, 19, 5],
  reserved_bytes: [32, 32, 32, 32],
  names: ["a.py:1 f", "b.py:2 g"],
  blocks: {
    columns: {
      block: [7, 8],
      category: [1, 1],
      bytes: [10, 5],
      first_bucket: [0, 1],
      last_bucket: [2, 3],
      born: [99, 102],
      died: [105, 200],
      name: [0, 1],
    },
  },
  hidden_blocks: 1,
} as HeapTile;
const tile = decodeTile(ANSWER, 1, 0);

describe("a tile", () => {
  it("stacks blocks in their category, the first one at the bottom", () => {
    const runs: Run[] = [];
    forEachRun(tile, (run) => runs.push(run));
    expect(runs.map(({ row, first, last, bottom }) => [row.block, first, last, bottom])).toEqual([
      [7, 0, 0, 0],
      [7, 1, 2, 3],
      [8, 1, 2, 13],
      [8, 3, 3, 0],
    ]);
  });
  it("finds the block at a point", () => {
    expect(hitTile(tile, 102.5, 14).block?.name).toBe("b.py:2 g");
    expect(hitTile(tile, 102.5, 12.9).block?.block).toBe(7);
    expect(hitTile(tile, 102.5, 2)).toMatchObject({ category: "unknown", block: null, entry: 103, requested: 18 });
  });
  it("knows the rest of a category, and free height", () => {
    expect(hitTile(tile, 104, 18.5)).toMatchObject({ category: "activation", block: null });
    expect(hitTile(tile, 104, 30)).toMatchObject({ category: null, block: null, reserved: 32 });
  });
  it("has the highest sum of its bands", () => expect(highestBytes(tile)).toBe(19));
});

describe("levels and tiles", () => {
  it("have buckets of at least a pixel", () => {
    expect(levelOf(1_000_000, 1000, 0, 12)).toBe(10);
    expect(levelOf(500, 1000, 0, 12)).toBe(0);
    expect(levelOf(500, 1000, 3, 12)).toBe(3);
    expect(levelOf(1e9, 1000, 0, 12)).toBe(12);
  });
  it("cover the window within the history", () => {
    expect(tilesOf(0, 250, 600, 10_000)).toEqual([0, 1, 2]);
    expect(tilesOf(2, 0, 1e9, 1025)).toEqual([0, 1]);
  });
});

describe("the window of entries", () => {
  it("stays within the history", () => {
    expect(limitWindow({ from: -5, to: 15 }, 100)).toEqual({ from: 0, to: 20 });
    expect(limitWindow({ from: 50, to: 51 }, 100)).toEqual({ from: 50, to: 58 });
    expect(moveWindow({ from: 80, to: 100 }, 30, 100)).toEqual({ from: 80, to: 100 });
  });
  it("zooms around an entry", () =>
    expect(zoomWindow({ from: 0, to: 100 }, 25, 0.5, 1000)).toEqual({ from: 12.5, to: 62.5 }));
  it("is written to the address", () => {
    expect(parseWindow(formatWindow({ from: 10.5, to: 40.2 }), 100)).toEqual({ from: 10, to: 41 });
    expect(parseWindow("no", 100)).toEqual({ from: 0, to: 100 });
  });
});

/** Two segments of the default pool, and one of a private pool. */
const MAP = {
  segments: {
    columns: {
      bytes: [100, 60, 40],
      used_bytes: [90, 0, 40],
      pool: ["default", "default", "0:1"],
      stream: ["0x0", "0x0", "0x0"],
      kind: ["large", "large", "large"],
    },
  },
  pieces: {
    columns: {
      segment: [0, 0, 1, 2],
      offset_bytes: [0, 90, 0, 0],
      bytes: [90, 10, 60, 40],
      requested_bytes: [88, 0, 0, 40],
      used_bytes: [90, 0, 0, 40],
      kind: ["used", "split", "cached", "used"],
      category: ["parameter", null, null, "graph"],
      block: [4, -1, -1, 5],
      in_the_way: [true, false, false, false],
      matches: [true, false, false, false],
    },
  },
} as unknown as HeapMap;

describe("the map of segments", () => {
  const groups = groupSegments(MAP);
  const layout = layOutMap(groups, 50, 2); // 2 bytes per pixel

  it("groups segments by pool, and places their pieces", () => {
    expect(groups.map(({ pool, bytes, used, segments }) => [pool, bytes, used, segments])).toEqual([
      ["default", 160, 90, 2],
      ["0:1", 40, 40, 1],
    ]);
    expect(groups[0]?.pieces.map(({ start }) => start)).toEqual([0, 90, 100]);
  });
  it("continues a group on the next line", () => {
    const boxes: number[][] = [];
    const [home] = layout.groups;
    if (home) forEachBox(layout, home, 90, 30, (...box) => boxes.push(box));
    expect(boxes).toEqual([
      [45, HEAD_PX, 5],
      [0, HEAD_PX + LINE_PX, 10],
    ]);
  });
  it("finds pieces and headings", () => {
    expect(findPiece(layout, 10, HEAD_PX + 1)?.piece?.block).toBe(4);
    expect(findPiece(layout, 46, HEAD_PX + 1)?.piece?.kind).toBe("split");
    expect(findPiece(layout, 5, HEAD_PX + LINE_PX + 1)?.piece?.kind).toBe("cached");
    expect(findPiece(layout, 5, 2 * HEAD_PX + 2 * LINE_PX + 1)?.piece?.block).toBe(5);
    expect(findPiece(layout, 5, 3)).toMatchObject({ piece: null, group: { pool: "default" } });
    expect(findPiece(layout, 40, 2 * HEAD_PX + 2 * LINE_PX + 1)).toBeNull();
  });
});

describe("texts", () => {
  it("split call stacks", () => expect(splitStack("a.py(1): f < b.py(2): g")).toEqual(["a.py(1): f", "b.py(2): g"]));
  it("have round ticks", () => {
    expect([3, 12, 400].map((least) => roundStep(least, 10))).toEqual([5, 20, 500]);
    expect(roundStep(3_000_000, 2)).toBe(4_194_304);
  });
});
