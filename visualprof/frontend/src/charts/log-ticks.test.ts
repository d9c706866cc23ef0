import { describe, expect, it } from "vitest";
import { logTicks } from "./log-ticks";

describe("logTicks", () => {
  it("surround the values", () =>
    expect(logTicks([62_000, 1_140_000])).toEqual({
      min: 50_000,
      max: 2_000_000,
      ticks: [50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000],
    }));
  it("end at the values if those are round", () =>
    expect(logTicks([100, 1000])).toMatchObject({ min: 100, max: 1000 }));
  it("span a range around a single value", () =>
    expect(logTicks([200])).toEqual({ min: 200, max: 500, ticks: [200, 500] }));
  it("leave wide axes to the powers of ten", () => expect(logTicks([1, 1000])).toBeNull());
  it("are null without values", () => expect(logTicks([0, -1, Number.NaN])).toBeNull());
});
