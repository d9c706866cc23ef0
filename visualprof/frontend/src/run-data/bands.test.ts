import { expect, test } from "vitest";
import type { RecordedRange, ScalarLine } from "../api";
import { bandsOf, valueAt } from "./bands";
import { recordedBands } from "./recorded";

const line = (run: string, x: number[], last: (number | null)[]) =>
  ({ run, line: ".", x, step: x.map((value) => value * 10), last, smoothed: last }) as unknown as ScalarLine;

test("values between points are interpolated, and unknown outside of the line", () => {
  expect(valueAt([0, 2], [1, 3], 1)).toBe(2);
  expect(valueAt([0, 2], [1, 3], 2)).toBe(3);
  expect(valueAt([0, 2], [1, 3], 3)).toBeNull();
  expect(valueAt([0, 2], [1, null], 1)).toBeNull();
});

test("lines of a color have a mean and a band", () => {
  const lines = [
    { line: line("a", [0, 2], [1, 3]), color: "red" },
    { line: line("b", [0, 1, 2], [3, 2, 5]), color: "red" },
    { line: line("c", [0], [9]), color: "blue" },
  ];
  const [band, ...others] = bandsOf(lines, "range", "last");
  expect(others).toEqual([]);
  expect(band).toEqual({ color: "red", x: [0, 1, 2], low: [1, 2, 3], mean: [2, 2, 4], high: [3, 2, 5] });
  expect(bandsOf(lines, "deviation", "last")[0]?.high[0]).toBeCloseTo(2 + Math.SQRT2);
  expect(bandsOf(lines, "none", "last")).toEqual([]);
});

test("recordings are at their steps, or at their time", () => {
  const recording: RecordedRange = {
    run: "a",
    worker: "w",
    span: "1",
    first_step: 5,
    last_step: 15,
    start_s: 100,
    end_s: 101,
  };
  const range = (axis: "step" | "relative" | "wall", changed: Partial<RecordedRange> = {}) =>
    recordedBands([{ ...recording, ...changed }], [line("a", [0, 2], [1, 3])], axis).map(({ from, to }) => [from, to]);
  expect(range("step")).toEqual([[5, 15]]);
  expect(range("relative")).toEqual([[0.5, 1.5]]);
  expect(range("wall")).toEqual([[100, 101]]);
  expect(range("wall", { start_s: null })).toEqual([[0.5, 1.5]]);
  expect(range("step", { first_step: null })).toEqual([]);
});
