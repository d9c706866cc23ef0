import { describe, expect, it } from "vitest";
import { pairSteps, alignmentShift, counterpartStep } from "./step-alignment";

const steps = (...tuples: [name: string, startNs: number, durationNs: number][]) =>
  tuples.map(([name, startNs, durationNs]) => ({ name, start_ns: startNs, duration_ns: durationNs }));

// The new run was recorded from step 5 on, the base from step 6 on. The second and the third are the longest.
const current = steps(["5", 100, 50], ["6", 150, 80], ["7", 230, 60]);
const base = steps(["6", 1000, 70], ["7", 1070, 60], ["8", 1130, 90]);

describe("aligned steps", () => {
  it("are the chosen step and its counterpart, or the first of both if none is chosen", () => {
    expect(pairSteps(current, base, "step", null, null)).toEqual({ current: 0, base: 0 });
    expect(pairSteps(current, base, "step", "7", "8")).toEqual({ current: 2, base: 2 });
    expect(pairSteps(current, base, "step", "7", "7")).toEqual({ current: 2, base: 1 });
  });

  it("have the same name, or are the first common step if none is chosen", () => {
    expect(pairSteps(current, base, "name", null, null)).toEqual({ current: 1, base: 0 });
    expect(pairSteps(current, base, "name", "7", "8")).toEqual({ current: 2, base: 1 });
    expect(pairSteps(current, base, "name", "5", "6")).toBeNull();
  });

  it("are the longest of both, whatever is chosen", () => {
    expect(pairSteps(current, base, "longest", "5", "6")).toEqual({ current: 1, base: 2 });
  });

  it("are missing if one run has no steps, or fewer", () => {
    for (const mode of ["step", "name", "longest"] as const) {
      expect(pairSteps([], base, mode, null, null)).toBeNull();
      expect(pairSteps(current, [], mode, null, null)).toBeNull();
    }
    expect(pairSteps(current, base, "step", "7", null)).toBeNull();
  });

  it("move the base by the difference of their starts", () => {
    expect(alignmentShift(current, base, pairSteps(current, base, "step", null, null))).toBe(100 - 1000);
    expect(alignmentShift(current, base, pairSteps(current, base, "longest", null, null))).toBe(150 - 1130);
    expect(alignmentShift(current, base, null)).toBe(0);
  });
});

describe("the counterpart of a step", () => {
  it("is as far from the pair as the step, in both directions", () => {
    const pair = pairSteps(current, base, "longest", null, null);
    const shift = (pair?.base ?? 0) - (pair?.current ?? 0);
    expect(counterpartStep("5", current, base, shift)).toBe("7");
    expect(counterpartStep("7", base, current, -shift)).toBe("5");
    expect(counterpartStep("7", current, base, shift)).toBeNull();
    expect(counterpartStep(null, current, base, shift)).toBeNull();
  });
});
