import { expect, test } from "vitest";
import type { ScalarLine } from "../api";
import { createScale, nearest, ticks, xRange, yRange } from "./plot";

function line(x: (number | null)[], values: (number | null)[]): ScalarLine {
  return {
    tag: "t",
    run: "r",
    line: ".",
    x,
    step: x,
    min: values,
    max: values,
    last: values,
    smoothed: values,
    points: x.map(() => 1),
    marks: { x: [], value: [] },
    superseded_x: [],
    superseded: [],
  };
}

test("ranges cover all lines; a logarithmic range covers positive values only", () => {
  const lines = [line([0, 5], [-1, 3]), line([2, 9], [null, 7])];
  expect(xRange(lines, false)).toEqual({ min: 0, max: 9 });
  expect(xRange(lines, true)).toEqual({ min: 2, max: 9 });
  expect(yRange(lines, { log: false, clip: false })).toEqual({ min: -1.4, max: 7.4 });
  expect(yRange(lines, { log: true, clip: false })?.min).toBeGreaterThan(2.8);
  expect(xRange([], false)).toBeNull();
  expect(yRange([line([1], [null])], { log: false, clip: false })).toBeNull();
});

test("outliers are outside of a clipped range", () => {
  const values = Array.from({ length: 100 }, (_, index) => (index === 50 ? 1000 : index / 100));
  const range = yRange([line(values, values)], { log: false, clip: true });
  expect(range?.max).toBeLessThan(1.1);
});

test("a constant line has room around it", () => {
  expect(yRange([line([0, 1], [2, 2])], { log: false, clip: false })).toEqual({ min: 1.9, max: 2.1 });
  expect(yRange([line([0, 1], [0, 0])], { log: false, clip: false })).toEqual({ min: -1, max: 1 });
});

test("scales convert in both directions", () => {
  for (const log of [false, true]) {
    const scale = createScale({ min: 1, max: 1000 }, 50, 350, log);
    expect(scale.toPx(1)).toBeCloseTo(50);
    expect(scale.toPx(1000)).toBeCloseTo(350);
    expect(scale.toValue(scale.toPx(37))).toBeCloseTo(37);
  }
});

test("ticks are round", () => {
  expect(ticks({ min: 0, max: 10_000 }, 5, false)).toEqual([0, 2000, 4000, 6000, 8000, 10_000]);
  expect(ticks({ min: 0.5, max: 2000 }, 5, true)).toEqual([1, 10, 100, 1000]);
  expect(ticks({ min: 3, max: 3 }, 5, false)).toEqual([3]);
});

test("the nearest point is found", () => {
  expect(nearest([0, 10, 20], 14)).toBe(1);
  expect(nearest([0, 10, 20], 16)).toBe(2);
  expect(nearest([0, 10, 20], -5)).toBe(0);
  expect(nearest([], 3)).toBe(-1);
});
