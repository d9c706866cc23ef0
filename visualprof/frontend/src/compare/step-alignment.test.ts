import { describe, expect, it } from "vitest";
import { pairOf, shiftOf, stepBeside } from "./step-alignment";

const steps = (...tuples: [name: string, startNs: number, durationNs: number][]) =>
  tuples.map(([name, startNs, durationNs]) => ({ name, start_ns: startNs, duration_ns: durationNs }));

// The new run was recorded from step 5 on, the base from step 6 on; the longest are the second and the third.
const current = steps(["5", 100, 50], ["6", 150, 80], ["7", 230, 60]);
const base = steps(["6", 1000, 70], ["7", 1070, 60], ["8", 1130, 90]);

describe("steps that begin together", () => {
  it("are the chosen one and what it is compared with, the first of both where none is chosen", () => {
    expect(pairOf(current, base, "step", null, null)).toEqual({ own: 0, base: 0 });
    expect(pairOf(current, base, "step", "7", "8")).toEqual({ own: 2, base: 2 });
    expect(pairOf(current, base, "step", "7", "7")).toEqual({ own: 2, base: 1 });
  });

  it("have one name, the first that both have where none is chosen", () => {
    expect(pairOf(current, base, "name", null, null)).toEqual({ own: 1, base: 0 });
    expect(pairOf(current, base, "name", "7", "8")).toEqual({ own: 2, base: 1 });
    expect(pairOf(current, base, "name", "5", "6")).toBeNull();
  });

  it("are the longest of both, whichever is chosen", () => {
    expect(pairOf(current, base, "longest", "5", "6")).toEqual({ own: 1, base: 2 });
  });

  it("are none where one run has no steps, or fewer", () => {
    for (const mode of ["step", "name", "longest"] as const) {
      expect(pairOf([], base, mode, null, null)).toBeNull();
      expect(pairOf(current, [], mode, null, null)).toBeNull();
    }
    expect(pairOf(current, base, "step", "7", null)).toBeNull();
  });

  it("move the base by the difference of their starts", () => {
    expect(shiftOf(current, base, pairOf(current, base, "step", null, null))).toBe(100 - 1000);
    expect(shiftOf(current, base, pairOf(current, base, "longest", null, null))).toBe(150 - 1130);
    expect(shiftOf(current, base, null)).toBe(0);
  });
});

describe("the step beside another", () => {
  it("is as far from the pair as the step itself, in both directions", () => {
    const pair = pairOf(current, base, "longest", null, null);
    const shift = (pair?.base ?? 0) - (pair?.own ?? 0);
    expect(stepBeside("5", current, base, shift)).toBe("7");
    expect(stepBeside("7", base, current, -shift)).toBe("5");
    expect(stepBeside("7", current, base, shift)).toBeNull();
    expect(stepBeside(null, current, base, shift)).toBeNull();
  });
});
