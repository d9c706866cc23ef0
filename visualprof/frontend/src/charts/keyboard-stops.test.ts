import { describe, expect, it } from "vitest";
import { nextStop, keyboardStops, stopX } from "./keyboard-stops";

describe("stops_of", () => {
  it("are the categories once, however many series are stacked", () =>
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
  it("are all points of all series, without the lines through them", () =>
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
  it("are none where there is nothing", () => expect(keyboardStops({ series: [] })).toEqual([]));
});

describe("step_to", () => {
  it("begins at the first and stays inside", () => {
    expect(nextStop("ArrowRight", -1, 3)).toBe(0);
    expect(nextStop("ArrowLeft", -1, 3)).toBe(0);
    expect(nextStop("ArrowRight", 2, 3)).toBe(2);
    expect(nextStop("End", -1, 3)).toBe(2);
    expect(nextStop("PageDown", 5, 100)).toBe(15);
  });
  it("leaves other keys and empty charts alone", () => {
    expect(nextStop("w", 0, 3)).toBeNull();
    expect(nextStop("Home", -1, 0)).toBeNull();
  });
});

describe("x_of", () => {
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
  it("is the first number of a point, and unknown elsewhere", () =>
    expect([{ series: 0, index: 1 }, { series: 1, index: 0 }, undefined].map((stop) => stopX(option, stop))).toEqual([
      8,
      NaN,
      NaN,
    ]));
});
