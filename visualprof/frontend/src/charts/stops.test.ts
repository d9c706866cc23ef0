import { describe, expect, it } from "vitest";
import { step_to, stops_of, x_of } from "./stops";

describe("stops_of", () => {
  it("are the categories once, however many series are stacked", () =>
    expect(
      stops_of({
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
      stops_of({
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
  it("are none where there is nothing", () => expect(stops_of({ series: [] })).toEqual([]));
});

describe("step_to", () => {
  it("begins at the first and stays inside", () => {
    expect(step_to("ArrowRight", -1, 3)).toBe(0);
    expect(step_to("ArrowLeft", -1, 3)).toBe(0);
    expect(step_to("ArrowRight", 2, 3)).toBe(2);
    expect(step_to("End", -1, 3)).toBe(2);
    expect(step_to("PageDown", 5, 100)).toBe(15);
  });
  it("leaves other keys and empty charts alone", () => {
    expect(step_to("w", 0, 3)).toBeNull();
    expect(step_to("Home", -1, 0)).toBeNull();
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
    expect([{ series: 0, index: 1 }, { series: 1, index: 0 }, undefined].map((stop) => x_of(option, stop))).toEqual([
      8,
      NaN,
      NaN,
    ]));
});
