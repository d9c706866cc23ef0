import { describe, expect, it } from "vitest";
import {
  formatBytes,
  formatCell,
  formatCount,
  formatDuration,
  formatExact,
  formatOperationRate,
  formatRate,
  formatRatio,
  formatRecordingName,
  UNKNOWN,
  formatSigned,
} from "./format";

const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("formatDuration", () => {
  it.each([
    [0, "0 ns"],
    [356, "356 ns"],
    [356.4, "356 ns"],
    [1_240_000, "1.24 ms"],
    [12_400, "12.4 µs"],
    [12_300_000_000, "12.3 s"],
    [125_000_000_000, "2 min 5 s"],
    [3_780_000_000_000, "1 h 3 min"],
    [-2_500_000, "−2.50 ms"],
    [-125_000_000_000, "−2 min 5 s"],
  ])("formats %d ns as %s", (ns, text) => expect(plain(formatDuration(ns))).toBe(text));

  it("uses the next unit if rounding reaches it", () => {
    expect(plain(formatDuration(999_960))).toBe("1.00 ms");
    expect(plain(formatDuration(999_400))).toBe("999 µs");
  });
});

describe("other units", () => {
  it("uses binary units for sizes and decimal ones for rates", () => {
    expect(plain(formatBytes(3.1 * 1024 ** 3))).toBe("3.10 GiB");
    expect(plain(formatBytes(512))).toBe("512 B");
    expect(plain(formatRate(1.5561e12))).toBe("1.56 TB/s");
    expect(plain(formatOperationRate(19.5e12))).toBe("19.5 TFLOP/s");
  });

  it("separates thousands", () => {
    expect(formatCount(1_234_567)).toBe("1,234,567");
    expect(formatCount(12.3456)).toBe("12.3");
  });

  it("use a minus sign, not a hyphen", () => {
    expect([formatCount(-1500), formatCount(-0.001), formatExact("ns", -1500)]).toEqual([
      "−1,500",
      "−1.0e-3",
      "−1,500 ns",
    ]);
    expect([formatRatio(-0.5), formatRatio(-42), formatBytes(-3)].map(plain)).toEqual(["−50.0 %", "−4,200 %", "−3 B"]);
  });

  it("never rounds a positive value to zero", () => {
    expect(plain(formatRatio(0.555))).toBe("55.5 %");
    expect(plain(formatRatio(0.0001))).toBe("<0.1 %");
    expect(plain(formatRatio(0))).toBe("0 %");
    expect(plain(formatRatio(1))).toBe("100 %");
  });
});

describe("cells", () => {
  it("show unknown values as a dash, not as zero", () => {
    expect(formatCell("ns", null)).toBe(UNKNOWN);
    expect(formatCell("ns", undefined)).toBe(UNKNOWN);
    expect(plain(formatCell("ns", 0))).toBe("0 ns");
  });

  it("format nested shapes with brackets", () => {
    expect(formatCell("text", [[32, 3, 224, 224], []])).toBe("[32, 3, 224, 224], []");
  });

  it("format launch dimensions as a product", () => {
    expect(formatCell("dims", "[7048, 1, 1]")).toBe("7048×1×1");
    expect(formatCell("dims", [8, 4, 10])).toBe("8×4×10");
  });

  it("do not format ids", () => {
    expect([formatCell("id", 123_456), formatExact("id", 123_456), formatCell("text", 0.5)]).toEqual([
      "123456",
      "123456",
      "0.5",
    ]);
  });

  it("put the sign before a change, unless it rounds to zero", () => {
    expect([formatSigned("ns", 1500), formatSigned("bytes", -2048), formatSigned("ratio", 0)]).toEqual([
      "+1.50\u00a0µs",
      "−2.00\u00a0KiB",
      "0\u00a0%",
    ]);
    expect([formatSigned("ratio", -0.0001), formatSigned("ratio", 42.789)]).toEqual(["<0.1\u00a0%", "+4,279\u00a0%"]);
  });

  it("keep the exact value for the title", () => {
    expect(formatExact("ns", 1_240_123)).toBe("1,240,123 ns");
    expect(formatExact("ratio", 0.55512)).toBe("55.512 %");
  });
});

describe("formatRecordingName", () => {
  it("formats times of the Unix epoch in any unit", () => {
    const names = ["1782950405", "1782950405000", "1782950405000000", "1782950405000000000"].map(formatRecordingName);
    expect(new Set(names).size).toBe(1);
    expect(names[0]).toMatch(/^2026-07-0[12] \d\d:\d\d:05$/);
  });

  it("does not change other names", () => {
    for (const name of ["1", "31337", "178295040500", "step12", "2026_11_20_03_52_43"])
      expect(formatRecordingName(name)).toBe(name);
  });
});
