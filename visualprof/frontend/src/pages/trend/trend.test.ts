import { describe, expect, it } from "vitest";
import { ratio } from "../../lib/format";
import { comparison, opened, ordered } from "./trend";

const list = (ids: readonly string[]) => ids.join(",");

describe("a measurement", () => {
  it("of a recording leads to its run, of a report to its point", () => {
    expect(opened({ run: "a/b", worker: "w", span: "1", batch: null }, list)).toEqual({
      path: "/overview",
      query: { run: "a/b", worker: "w", span: "1" },
    });
    expect(opened({ run: "r", worker: "", span: "", batch: 4 }, list)).toEqual({
      path: "/evaluation",
      query: { reports: "r", point: "r", batch: "4" },
    });
  });
});

describe("a change", () => {
  it("leads to the comparison of the runs on both sides of it", () => {
    const location = comparison({ of: "recordings", run: "new", before: "old", change: "worse", ratio: 0.091 }, list);
    expect(location).toEqual({
      kind: "worse",
      share: `+${ratio(0.091)}`,
      to: { path: "/overview", query: { run: "new", base: "old" } },
    });
    expect(comparison({ of: "reports", run: "new", before: "old", change: "better", ratio: -0.2 }, list)?.to).toEqual({
      path: "/evaluation",
      query: { reports: "old,new" },
    });
  });

  it("is not there without one", () => {
    expect(comparison({ of: "recordings", run: null, before: null, change: "none", ratio: null }, list)).toBeNull();
  });
});

describe("the order of series", () => {
  const columns = { series: ["b", "a c", "A d"], level: [1, 3, 2] };

  it("is the server's, or that of a column", () => {
    expect(ordered(columns, "", "desc", "")).toEqual([0, 1, 2]);
    expect(ordered(columns, "level", "desc", "")).toEqual([1, 2, 0]);
    expect(ordered(columns, "series", "asc", "")).toEqual([1, 2, 0]);
  });

  it("holds those whose name has every word", () => {
    expect(ordered(columns, "", "desc", "a")).toEqual([1, 2]);
    expect(ordered(columns, "", "desc", "D a")).toEqual([2]);
    expect(ordered(undefined, "", "desc", "")).toEqual([]);
  });
});
