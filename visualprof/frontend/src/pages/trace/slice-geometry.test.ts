import { describe, expect, it } from "vitest";
import { laneRange } from "./tile";
import { noise, randomLane, sliceTile } from "../../../tests/made-tiles";
import { entryAt, leftEdge, paintRow, rightEdge, type Part } from "./slice-geometry";

const GROUND = 7;

function partOf(random: () => number, entries: number): Part {
  const tile = sliceTile(randomLane(random, entries));
  // Each entry has its own color, so that a pixel identifies its entry.
  const solid = Uint32Array.from(tile.start, (_, index) => 1000 + index);
  tile.paint = {
    look: 0,
    solid,
    muted: Uint32Array.from(solid, (color, index) => ((tile.count[index] ?? 0) > 1 ? color + 100_000 : color)),
  };
  const scale = [0.5, 0.9, 1, 3.7, 40][Math.floor(random() * 5)] ?? 1;
  const offset = Math.floor(random() * 100) - 50 + random();
  return {
    tile,
    scale,
    offset,
    clip0: Math.max(0, Math.floor(offset)),
    clip1: Math.min(1200, Math.max(0, Math.floor(offset + 256 * scale))),
  };
}

describe("a painted entry", () => {
  it("is hit: at any pixel, the hit entry covers it and is the visible one", () => {
    const random = noise(1);
    for (let round = 0; round < 60; round += 1) {
      const part = partOf(random, 1 + Math.floor(random() * 120));
      const pixels = new Uint32Array(1200).fill(GROUND);
      paintRow(pixels, 0, part, 0);
      pixels.forEach((color, x) => {
        const entry = entryAt(part, 0, x);
        if (entry >= 0) {
          expect(leftEdge(part, entry)).toBeLessThanOrEqual(x);
          expect(rightEdge(part, entry)).toBeGreaterThan(x);
        }
        if (color !== GROUND) expect((color - 1000) % 100_000).toBe(entry);
        // Only the gap after a wide entry may be hit without being painted.
        else if (entry >= 0) expect(x).toBe(rightEdge(part, entry) - 1);
      });
    }
  });

  it("is omitted only if a later one covers its only pixel", () => {
    const random = noise(2);
    for (let round = 0; round < 30; round += 1) {
      const part = partOf(random, 80);
      const [first, last] = laneRange(part.tile, 0);
      for (let entry = first; entry < last; entry += 1) {
        const x = leftEdge(part, entry);
        if (x < part.clip0 || x >= part.clip1) continue;
        const hit = entryAt(part, 0, x);
        expect(hit).toBeGreaterThanOrEqual(entry);
        expect(leftEdge(part, hit)).toBe(x);
      }
    }
  });

  it("stays between its clips, even if the entry extends beyond them", () => {
    const tile = sliceTile([{ start: -1, end: 257 }]);
    tile.paint = { look: 0, solid: Uint32Array.of(1), muted: Uint32Array.of(1) };
    const pixels = new Uint32Array(64).fill(GROUND);
    paintRow(pixels, 0, { tile, scale: 1, offset: 0, clip0: 10, clip1: 20 }, 0);
    expect([...pixels].map((color, x) => (color === 1 ? x : -1)).filter((x) => x >= 0)).toEqual([
      10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
    ]);
  });
});
