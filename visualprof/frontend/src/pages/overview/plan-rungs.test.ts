import { describe, expect, it } from "vitest";
import type { PlanAnswer } from "../../api/model";
import { planRungs } from "./plan-rungs";

function plan(stepNs: (number | null)[]): PlanAnswer {
  const columns = {
    lever: stepNs.map((_, index) => `lever${index}`),
    change: stepNs.map((_, i) => `c${i}`),
    step_ns: stepNs,
  };
  return { baseline_ns: 100, rungs: { columns } } as unknown as PlanAnswer;
}

describe("the rungs of a plan", () => {
  it("start where the ones before them end", () => {
    const { planned } = planRungs(plan([80, 50]));
    expect(planned.map(({ before, after }) => [before, after])).toEqual([
      [1, 0.8],
      [0.8, 0.5],
    ]);
  });

  it("are replayed with the changes before them", () => {
    expect(planRungs(plan([80, 50])).planned.map((rung) => rung.together)).toEqual(["c0", "c0; c1"]);
  });

  it("without a prediction are possible changes", () => {
    const { planned, possible } = planRungs(plan([80, null]));
    expect(planned.map((rung) => rung.lever)).toEqual(["lever0"]);
    expect(possible.map((rung) => rung.lever)).toEqual(["lever1"]);
  });

  it("have the late rank before them", () => {
    const answer = plan([null, 80]);
    answer.rungs.columns.lever[0] = "balanced_ranks";
    const { first, planned, possible } = planRungs(answer);
    expect([first, planned, possible].map((rows) => rows.map((rung) => rung.lever))).toEqual([
      ["balanced_ranks"],
      ["lever1"],
      [],
    ]);
  });
});
