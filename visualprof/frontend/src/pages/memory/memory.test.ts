import { describe, expect, it } from "vitest";
import type { MemoryDevice, MemoryPeak } from "../../api/model";
import { parseBytes } from "../../lib/parse-bytes";
import { deviceFacts } from "./facts";
import { availableGroups, peakShares } from "./peak";
import { parseWindow, dragWindow } from "./time-window";

const device: MemoryDevice = {
  id: -1,
  name: "host",
  memory_bytes: null,
  events: 3,
  relative: false,
  peak_allocated_bytes: 100,
  peak_reserved_bytes: null,
  fragmentation_bytes: null,
};

describe("facts of a device", () => {
  it("have no share of a memory of unknown size", () => expect(deviceFacts(device)["peak_ratio"]).toBeNull());

  it("compare the peak with the device's memory", () => {
    expect(
      deviceFacts({ ...device, memory_bytes: 400, peak_reserved_bytes: 200, fragmentation_bytes: 50 }),
    ).toMatchObject({ peak_ratio: 0.25, fragmentation_bytes: 50 });
  });
});

describe("the memory at the peak", () => {
  const table = {
    columns: { name: ["mm", ""], bytes: [60, 20], allocations: [2, 1] },
    total_rows: 2,
    matching_rows: null,
    offset: null,
  };
  const peak: MemoryPeak = { ts_ns: 5, allocated_bytes: 100, known_bytes: 80, operators: table, modules: null };

  it("offers the available groups", () => expect(availableGroups(peak)).toEqual(["operators"]));

  it("ends with memory from before the profile", () => {
    const shares = peakShares(peak, "operators");
    expect(shares.map((share) => [share.name, share.share, share.before])).toEqual([
      ["mm", 0.6, false],
      ["", 0.2, false],
      ["", 0.2, true],
    ]);
  });

  it("never exceeds the total if totals count from the start of the profile", () => {
    expect(peakShares({ ...peak, allocated_bytes: 40 }, "operators").map((share) => share.share)).toEqual([0.75, 0.25]);
  });
});

describe("the time window", () => {
  it("is parsed only if it is valid", () => {
    expect(parseWindow("5", "9")).toEqual({ start_ns: 5, end_ns: 9 });
    for (const [start, end] of [
      ["9", "5"],
      ["-1", "5"],
      ["x", "5"],
      [null, "5"],
    ] as const)
      expect(parseWindow(start, end)).toBeNull();
  });

  it("covers the dragged range", () => expect(dragWindow(-3.2, 7.1)).toEqual({ start_ns: 0, end_ns: 8 }));
});

describe("parseBytes", () => {
  it.each([
    ["512", 512],
    ["4k", 4096],
    ["10 MiB", 10_485_760],
    ["1.5 GB", 1_610_612_736],
  ] as const)("%s", (text, value) => expect(parseBytes(text)).toBe(value));
  it.each(["", "much", "-3", "4 x"])("%j is not a size", (text) => expect(parseBytes(text)).toBeNull());
});
