import { describe, expect, it } from "vitest";
import { waterfall } from "./waterfall";

// 100 = 60 + 30 + 10 becomes 90 = 70 + 15 + 5.
const parts = {
  part: ["cpu", "dataloader", "other", "memset"],
  base_ns: [60, 30, 10, 0],
  new_ns: [70, 15, 5, 0],
  delta_ns: [10, -15, -5, 0],
  significant: [true, true, false, null],
};

describe("the waterfall of a step's change", () => {
  it("starts with the largest regression and omits parts that neither step has", () => {
    expect(waterfall(parts).stages.map((stage) => [stage.name, stage.delta_ns])).toEqual([
      ["cpu", 10],
      ["other", -5],
      ["dataloader", -15],
    ]);
  });

  it("shows the share of each part before and after", () => {
    const { stages } = waterfall(parts);
    expect(stages.map(({ base_share, new_share }) => [base_share, new_share])).toEqual([
      [60 / 100, 70 / 90],
      [10 / 100, 5 / 90],
      [30 / 100, 15 / 90],
    ]);
  });

  it("tells changes beyond noise from the others, and from those that are unknown", () => {
    const unknown = waterfall({ ...parts, significant: [null, null, null, null] });
    expect(waterfall(parts).stages.map((stage) => stage.significant)).toEqual([true, false, true]);
    expect(unknown.stages.map((stage) => stage.significant)).toEqual([false, false, false]);
  });

  it("leads from the base to the new step without a gap", () => {
    const { base, now, stages } = waterfall(parts);
    expect([base, ...stages.map((stage) => stage.end)]).toEqual([...stages.map((stage) => stage.start), now]);
    expect(Math.max(base, now, ...stages.map((stage) => stage.end))).toBe(1);
  });

  it("starts at 0 if the changes are visible", () => {
    const { floor_ns, base, now } = waterfall({
      part: ["cpu"],
      base_ns: [100],
      new_ns: [50],
      delta_ns: [-50],
      significant: [true],
    });
    expect([floor_ns, base, now]).toEqual([0, 1, 0.5]);
  });

  it("starts near small changes: levels 1000 to 1010 take 40 % of an axis that starts 15 % below them", () => {
    const { floor_ns, base } = waterfall({
      part: ["cpu"],
      base_ns: [1000],
      new_ns: [1010],
      delta_ns: [10],
      significant: [true],
    });
    expect(floor_ns).toBeCloseTo(1000 - (10 / 0.4) * 0.15);
    expect(base).toBeCloseTo(3.75 / 13.75);
  });

  it("of an unchanged step is flat", () => {
    const { floor_ns, base, now, stages } = waterfall({
      part: ["cpu"],
      base_ns: [7],
      new_ns: [7],
      delta_ns: [0],
      significant: [true],
    });
    expect([floor_ns, base, now, stages[0]?.start, stages[0]?.end]).toEqual([0, 1, 1, 1, 1]);
  });

  it("of no parts is empty", () => {
    expect(waterfall({ part: [], base_ns: [], new_ns: [], delta_ns: [], significant: [] })).toEqual({
      floor_ns: 0,
      base: 0,
      now: 0,
      stages: [],
    });
  });
});
