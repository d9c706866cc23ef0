import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../api";
import { curveDifference, findPeaks, valuesAt, addBaseCurve, type Point } from "./base-curve";

// 10 B from 0 on, 30 B from 20 to 50; the base has 10 B from 5 on, 15 B from 20 and 0 B from 40.
const curve: Point[] = [
  [0, 10],
  [20, 30],
  [50, 10],
];
const base: Point[] = [
  [5, 10],
  [20, 15],
  [40, 0],
];
const chart = (data: Point[]) =>
  ({
    series: [
      { type: "line", name: "@t:memory.reserved", data: [[0, 99]] },
      { type: "line", name: "@t:memory.allocated", data },
    ],
  }) as unknown as JsonObject;

describe("two curves of memory", () => {
  it("keep a value until the next one", () =>
    expect(valuesAt(curve, [-1, 0, 19, 20, 60])).toEqual([null, 10, 10, 30, 10]));

  it("differ while both are known", () => {
    expect(curveDifference(curve, base)).toEqual([
      [5, 0],
      [20, 15],
      [40, 30],
    ]);
    expect(curveDifference(curve, [])).toEqual([]);
  });

  it("share an axis, with the base moved", () => {
    const series = addBaseCurve(chart(curve), chart(base), 10)["series"] as unknown as {
      name: string;
      data: Point[];
    }[];
    expect(series.map((series) => series.name)).toEqual([
      "@t:memory.reserved",
      "@t:memory.allocated",
      "@t:memory.base_allocated",
      "@t:memory.difference",
    ]);
    expect(series[2]?.data).toEqual([
      [15, 10],
      [30, 15],
      [50, 0],
    ]);
    // 15: 10 - 10, 20: 30 - 10, 30: 30 - 15, 50: 10 - 0.
    expect(series[3]?.data).toEqual([
      [15, 0],
      [20, 20],
      [30, 15],
      [50, 10],
    ]);
  });

  it("have peaks, unknown without a curve", () => {
    expect(findPeaks(chart(curve), chart(base))).toEqual({ now: 30, before: 15 });
    expect(findPeaks(chart(curve), undefined)).toEqual({ now: 30, before: null });
  });
});
