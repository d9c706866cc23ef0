import { describe, expect, it } from "vitest";
import { level_of, tile_ns, tiles_in, whole_level } from "./level";

describe("levels", () => {
  it("have buckets of at most one pixel and more than half of one", () => {
    for (const ns of [1, 1.5, 2, 3, 1000, 123_456.7, 9e9]) {
      expect(2 ** level_of(ns)).toBeLessThanOrEqual(ns);
      expect(2 ** (level_of(ns) + 1)).toBeGreaterThan(ns);
    }
    expect(level_of(0.01)).toBe(0);
  });

  it("end where one tile holds everything", () => {
    for (const duration of [0, 1, 255, 256, 257, 1e9, 3.6e12]) {
      expect(tile_ns(whole_level(duration))).toBeGreaterThan(duration);
      expect(tiles_in(0, duration + 1, whole_level(duration), duration)).toEqual([0, 0]);
    }
  });
});

describe("tiles of a window", () => {
  it("cover it and no more", () => expect(tiles_in(256, 1024, 0, 1e6)).toEqual([1, 3]));

  it("stay inside the trace", () => {
    expect(tiles_in(-5000, 1e12, 2, 10_000)).toEqual([0, Math.floor(10_000 / 1024)]);
    const [first, last] = tiles_in(-5000, -10, 2, 10_000);
    expect(last).toBeLessThan(first);
  });
});
