import { describe, expect, it } from "vitest";
import { tileLevel, tileNs, tilesIn, topLevelFor } from "./tile-levels";

describe("levels", () => {
  it("have buckets of at most one pixel and more than half a pixel", () => {
    for (const ns of [1, 1.5, 2, 3, 1000, 123_456.7, 9e9]) {
      expect(2 ** tileLevel(ns)).toBeLessThanOrEqual(ns);
      expect(2 ** (tileLevel(ns) + 1)).toBeGreaterThan(ns);
    }
    expect(tileLevel(0.01)).toBe(0);
  });

  it("end where one tile covers the trace", () => {
    for (const duration of [0, 1, 255, 256, 257, 1e9, 3.6e12]) {
      expect(tileNs(topLevelFor(duration))).toBeGreaterThan(duration);
      expect(tilesIn(0, duration + 1, topLevelFor(duration), duration)).toEqual([0, 0]);
    }
  });
});

describe("tiles of a window", () => {
  it("cover it exactly", () => expect(tilesIn(256, 1024, 0, 1e6)).toEqual([1, 3]));

  it("stay inside the trace", () => {
    expect(tilesIn(-5000, 1e12, 2, 10_000)).toEqual([0, Math.floor(10_000 / 1024)]);
    const [first, last] = tilesIn(-5000, -10, 2, 10_000);
    expect(last).toBeLessThan(first);
  });
});
