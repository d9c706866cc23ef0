import { beforeAll, describe, expect, it } from "vitest";
import { ALL_TEXTS, setLanguage } from "../locales";
import { causeText, judgeStep, rowWording } from "./texts";

beforeAll(() => setLanguage("en", ALL_TEXTS));

const cause = {
  name: "enumerate(DataLoader)",
  part: "dataloader",
  base_ns: 30_500_000,
  new_ns: 2_000_000,
  delta_ns: -28_500_000,
  delta_ratio: -0.934,
  base_share_ratio: 0.36,
  new_share_ratio: 0.0015,
  share_of_change: 0.363,
  low_ns: -120_000_000,
  high_ns: 63_000_000,
  certainty: "likely" as const,
};
const step = {
  base_median_ns: 100,
  new_median_ns: 112,
  median_delta_ns: 12,
  median_delta_ratio: 0.12,
  base_ns: 100,
  new_ns: 112,
  delta_ns: 12,
  delta_ratio: 0.12,
  low_ns: 5,
  high_ns: 20,
  significant: false,
  detectable_ratio: 0.03,
};

describe("the texts of a comparison", () => {
  it("name a row without an operator by its part of the step", () => {
    expect(rowWording("name", "dataloader")).toBe("Data loading");
    expect(rowWording("name", "aten::add")).toBe("aten::add");
  });

  it("name a cause with its share before and after, its interval and its certainty", () => {
    const text = causeText(cause);
    expect(text).toMatch(/36\.0\s% → 0\.[12]\s%/);
    expect(text).toMatch(/−28\.5\sms \(95 % interval: −120\sms to \+63\.0\sms\)/);
    expect(text).toContain("Likely cause");
    expect(causeText({ ...cause, certainty: "significant" })).not.toContain("Likely cause");
  });

  it("attribute a change that all rows share to load", () => {
    expect(judgeStep({ ...step, attributed_to_load: true }, true).heading).toBe("Attributed to load.");
    expect(judgeStep(step, true).heading).toBe("Changes within noise");
  });
});
