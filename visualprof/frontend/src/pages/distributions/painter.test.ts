import { expect, test } from "vitest";
import type { HistogramLine } from "../../api";
import { columnEnds, createAxes, type Mode } from "./painter";

const line = {
  step: [0, 10],
  counts: [
    [1, 3],
    [2, 0],
  ],
  quantiles: [],
} as unknown as HistogramLine;
const ranges = (mode: Mode) => {
  const { x, y } = createAxes([-1, 0, 1], line, { width: 300, height: 200, theme: "light", color: "#000", mode });
  return [x.range, y.range];
};

test("histograms have values and counts, maps over steps have steps and values", () => {
  expect(ranges("overlay")).toEqual([
    { min: -1, max: 1 },
    { min: 0, max: 3 },
  ]);
  expect(ranges("heat")).toEqual([
    { min: 0, max: 10 },
    { min: -1, max: 1 },
  ]);
});

test("a column reaches halfway to its neighbors", () => {
  const range = { min: 0, max: 10 };
  expect([0, 1, 2].map((index) => columnEnds([0, 4, 10], index, range))).toEqual([
    [0, 2],
    [2, 7],
    [7, 10],
  ]);
});
