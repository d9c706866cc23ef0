import { describe, expect, it } from "vitest";
import { nextStop, keyboardStops, stopX } from "./keyboard-stops";

describe("keyboardStops", () => {
  it("returns the categories once for stacked series", () =>
    expect(
      keyboardStops({
        xAxis: { data: ["5", "6"] },
        series: [
          { type: "bar", data: [1, 2] },
          { type: "bar", data: [3, 4] },
        ],
      }),
    ).toEqual([
      { series: 0, index: 0 },
      { series: 0, index: 1 },
    ]));
  it("returns all points of all series, without lines through them", () =>
    expect(
      keyboardStops({
        series: [
          { type: "line", silent: true, data: [[1, 1]] },
          { type: "scatter", data: [[1, 1]] },
          { type: "scatter", data: [[2, 2]] },
        ],
      }),
    ).toEqual([
      { series: 1, index: 0 },
      { series: 2, index: 0 },
    ]));
  it("returns nothing for an empty chart", () => expect(keyboardStops({ series: [] })).toEqual([]));
});

describe("nextStop", () => {
  it("starts at the first stop and stays within the list", () => {
    expect(nextStop("ArrowRight", -1, 3)).toBe(0);
    expect(nextStop("ArrowLeft", -1, 3)).toBe(0);
    expect(nextStop("ArrowRight", 2, 3)).toBe(2);
    expect(nextStop("End", -1, 3)).toBe(2);
    expect(nextStop("PageDown", 5, 100)).toBe(15);
  });
  it("ignores other keys and empty charts", () => {
    expect(nextStop("w", 0, 3)).toBeNull();
    expect(nextStop("Home", -1, 0)).toBeNull();
  });
});

describe("stopX", () => {
  const option = {
    series: [
      {
        type: "line",
        data: [
          [5, 1],
          [8, 2],
        ],
      },
      { type: "bar", data: [3] },
    ],
  };
  it("returns the first number of a point, and NaN otherwise", () =>
    expect([{ series: 0, index: 1 }, { series: 1, index: 0 }, undefined].map((stop) => stopX(option, stop))).toEqual([
      8,
      NaN,
      NaN,
    ]));
});
