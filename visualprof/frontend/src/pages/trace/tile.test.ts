import { describe, expect, it } from "vitest";
import { counterBytes, sliceBytes, sliceTile } from "../../../tests/made-tiles";
import { decodeTile, laneRange } from "./tile";

describe("tiles", () => {
  it("are read column by column, with any padding", () => {
    for (const n of [0, 1, 2, 3, 4, 5]) {
      const entries = Array.from({ length: n }, (_, i) => ({
        start: i,
        end: i + 0.5,
        lane: i >> 1,
        event: 100 + i,
        name: 7 * i,
        count: i + 1,
        category: 20 - i,
      }));
      const tile = decodeTile(sliceBytes(entries), 3, 9);
      expect(tile.kind).toBe("slices");
      if (tile.kind !== "slices") continue;
      expect([...tile.start]).toEqual(entries.map((entry) => entry.start));
      expect([...tile.end]).toEqual(entries.map((entry) => entry.end));
      expect([...tile.event]).toEqual(entries.map((entry) => entry.event));
      expect([...tile.name]).toEqual(entries.map((entry) => entry.name));
      expect([...tile.count]).toEqual(entries.map((entry) => entry.count));
      expect([...tile.category]).toEqual(entries.map((entry) => entry.category));
    }
  });

  it("know the entries of each lane, including empty ones", () => {
    const tile = sliceTile([
      { start: 0, end: 1, lane: 1 },
      { start: 2, end: 3, lane: 1 },
      { start: 0, end: 9, lane: 4 },
    ]);
    expect([0, 1, 2, 3, 4, 5].map((lane) => laneRange(tile, lane))).toEqual([
      [0, 0],
      [0, 2],
      [2, 2],
      [2, 2],
      [2, 3],
      [0, 0],
    ]);
  });

  it("of counters have the value before them", () => {
    const tile = decodeTile(counterBytes(5, [[3, 1, 9, 2]]), 0, 0);
    expect(tile.kind === "counter" && [tile.before, ...tile.bucket, ...tile.low, ...tile.high, ...tile.last]).toEqual([
      5, 3, 1, 9, 2,
    ]);
  });

  it("reject other bytes", () => {
    expect(() => decodeTile(new TextEncoder().encode('{"error": "no"}..').buffer, 0, 0)).toThrow(RangeError);
  });
});
