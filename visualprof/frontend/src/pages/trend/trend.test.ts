import { describe, expect, it } from "vitest";
import { formatRatio } from "../../lib/format";
import { comparisonLocation, measurementLocation, sortSeries } from "./trend";

const list = (ids: readonly string[]) => ids.join(",");

describe("a measurement", () => {
  it("of a recording leads to its run, of a report to its point", () => {
    expect(measurementLocation({ run: "a/b", worker: "w", span: "1", batch: null }, list)).toEqual({
      path: "/overview",
      query: { run: "a/b", worker: "w", span: "1" },
    });
    expect(measurementLocation({ run: "r", worker: "", span: "", batch: 4 }, list)).toEqual({
      path: "/evaluation",
      query: { reports: "r", point: "r", batch: "4" },
    });
  });
});

describe("a change", () => {
  it("leads to the comparison of the runs before and after it", () => {
    const location = comparisonLocation(
      { of: "recordings", run: "new", before: "old", change: "worse", ratio: 0.091 },
      list,
    );
    expect(location).toEqual({
      kind: "worse",
      share: `+${formatRatio(0.091)}`,
      to: { path: "/overview", query: { run: "new", base: "old" } },
    });
    expect(
      comparisonLocation({ of: "reports", run: "new", before: "old", change: "better", ratio: -0.2 }, list)?.to,
    ).toEqual({
      path: "/evaluation",
      query: { reports: "old,new" },
    });
  });

  it("has no link without a change", () => {
    expect(
      comparisonLocation({ of: "recordings", run: null, before: null, change: "none", ratio: null }, list),
    ).toBeNull();
  });
});

describe("the order of series", () => {
  const columns = { series: ["b", "a c", "A d"], level: [1, 3, 2] };

  it("is the server's, or that of a column", () => {
    expect(sortSeries(columns, [], "")).toEqual([0, 1, 2]);
    expect(sortSeries(columns, [{ column: "level", descending: true }], "")).toEqual([1, 2, 0]);
    expect(sortSeries(columns, [{ column: "series", descending: false }], "")).toEqual([1, 2, 0]);
  });

  it("contains series whose name has every word", () => {
    expect(sortSeries(columns, [], "a")).toEqual([1, 2]);
    expect(sortSeries(columns, [], "D a")).toEqual([2]);
    expect(sortSeries(undefined, [], "")).toEqual([]);
  });
});
