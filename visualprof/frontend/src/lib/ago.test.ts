import { describe, expect, it } from "vitest";
import { ago } from "./ago";

const NOW_MS = 1_800_000_000_000;
const before = (seconds: number) => (NOW_MS / 1000 - seconds) * 1e9;

describe("ago", () => {
  it("uses the largest unit that fits", () => {
    expect(ago(before(7), NOW_MS, "en")).toBe("7 sec. ago");
    expect(ago(before(3700), NOW_MS, "en")).toBe("1 hr. ago");
  });
  it("speaks Chinese", () => expect(ago(before(120), NOW_MS, "zh-CN")).toBe("2分钟前"));
  it("knows no future: another machine's clock may run ahead", () => expect(ago(before(-60), NOW_MS, "en")).toBe("now"));
});
