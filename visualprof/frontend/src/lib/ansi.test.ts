import { describe, expect, it } from "vitest";
import { logLines } from "./ansi";

describe("logLines", () => {
  it("removes colors, links and cursor movements", () =>
    expect(logLines("\u001b[1;32mok\u001b[0m \u001b]8;;http://x\u0007link\u001b]8;;\u0007\u001b[2K")).toEqual([
      "ok link",
    ]));
  it("shows the last text of a progress bar", () =>
    expect(logLines("10 %\r50 %\r100 %\nnext")).toEqual(["100 %", "next"]));
  it("splits at Windows line ends", () => expect(logLines("a\r\nb\r\n")).toEqual(["a", "b", ""]));
  it("shows other control characters", () => expect(logLines("a\u0000b\u202ec")).toEqual(["a\u2400b\ufffdc"]));
});
