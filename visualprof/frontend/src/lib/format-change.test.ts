import { describe, expect, it } from "vitest";
import { formatChange } from "./format-change";

const plain = (before: number, now: number) => formatChange("bytes", before, now).replaceAll("\u00a0", " ");

describe("a change", () => {
  it("has a sign and a ratio", () =>
    expect([plain(200, 250), plain(200, 100)]).toEqual(["+50 B (+25.0 %)", "−100 B (−50.0 %)"]));
  it("has no ratio to zero, and no negligible one", () =>
    expect([plain(0, 5), plain(7, 7), plain(100_000, 99_999)]).toEqual(["+5 B", "0 B", "−1 B"]));
});
