import { describe, expect, it } from "vitest";
import { formatAgo, formatUntil } from "./relative-time";

const NOW_MS = 1_800_000_000_000;
const before = (seconds: number) => (NOW_MS / 1000 - seconds) * 1e9;

describe("formatAgo", () => {
  it("uses the largest unit that fits", () => {
    expect(formatAgo(before(7), NOW_MS, "en")).toBe("7 sec. ago");
    expect(formatAgo(before(3700), NOW_MS, "en")).toBe("1 hr. ago");
  });
  it("supports Chinese", () => expect(formatAgo(before(120), NOW_MS, "zh-CN")).toBe("2 分钟前"));
  it("shows future times as now: another machine's clock may run ahead", () =>
    expect(formatAgo(before(-60), NOW_MS, "en")).toBe("now"));
});

describe("formatUntil", () => {
  it("shows future times", () => {
    expect(formatUntil(before(-7 * 86_400), NOW_MS, "en")).toBe("in 7 days");
    expect(formatUntil(before(-3700), NOW_MS, "zh-CN")).toBe("1 小时后");
  });
  it("shows past times as now", () => expect(formatUntil(before(60), NOW_MS, "en")).toBe("now"));
});
