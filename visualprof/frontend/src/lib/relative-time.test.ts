import { describe, expect, it } from "vitest";
import { formatAgo, formatUntil } from "./relative-time";

const NOW_MS = 1_800_000_000_000;
const before = (seconds: number) => (NOW_MS / 1000 - seconds) * 1e9;

describe("ago", () => {
  it("uses the largest unit that fits", () => {
    expect(formatAgo(before(7), NOW_MS, "en")).toBe("7 sec. ago");
    expect(formatAgo(before(3700), NOW_MS, "en")).toBe("1 hr. ago");
  });
  it("speaks Chinese", () => expect(formatAgo(before(120), NOW_MS, "zh-CN")).toBe("2分钟前"));
  it("knows no future: another machine's clock may run ahead", () =>
    expect(formatAgo(before(-60), NOW_MS, "en")).toBe("now"));
});

describe("until", () => {
  it("tells what is to come", () => {
    expect(formatUntil(before(-7 * 86_400), NOW_MS, "en")).toBe("in 7 days");
    expect(formatUntil(before(-3700), NOW_MS, "zh-CN")).toBe("1小时后");
  });
  it("is over once it was", () => expect(formatUntil(before(60), NOW_MS, "en")).toBe("now"));
});
