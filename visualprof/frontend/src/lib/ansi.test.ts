import { describe, expect, it } from "vitest";
import { logLines } from "./ansi";

describe("log_lines", () => {
  it("leaves out colours, links and cursor movements", () =>
    expect(logLines("\u001b[1;32mok\u001b[0m \u001b]8;;http://x\u0007link\u001b]8;;\u0007\u001b[2K")).toEqual([
      "ok link",
    ]));
  it("shows what a progress bar wrote last", () =>
    expect(logLines("10 %\r50 %\r100 %\nnext")).toEqual(["100 %", "next"]));
  it("ends lines of Windows, too", () => expect(logLines("a\r\nb\r\n")).toEqual(["a", "b", ""]));
  it("makes other control characters visible", () => expect(logLines("a\u0000b\u202ec")).toEqual(["a\u2400b\ufffdc"]));
});
