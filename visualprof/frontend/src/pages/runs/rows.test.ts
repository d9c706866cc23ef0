import { describe, expect, it } from "vitest";
import type { Run } from "../../api";
import { arrange, cellOf, deviceText, toRow } from "./rows";

function run(id: string, modified: number, warnings: string[] = []): Run {
  const span = { id: "1", state: "ready", steps: ["1", "2"], size_bytes: 10, warnings, modified_ns: modified };
  return {
    id,
    name: id,
    frameworks: ["pytorch"],
    modified_ns: modified,
    workers: [{ id: "w", spans: [span, span] }],
  } as never;
}

const headline = (step: number | null, ...devices: string[]) => ({ step_median_ns: step, utilization: null, devices });
const rows = [
  toRow(run("old", 1), headline(30, "H100", "H100", "A100")),
  toRow(run("new", 3, ["cut off"]), headline(null, "cpu")),
  toRow(run("middle", 2), undefined),
];
const newest = [{ column: "date", descending: true }];
const names = (list: typeof rows) => list.map((row) => row.run.id);

describe("the rows of the list of runs", () => {
  it("add up the files of a run", () =>
    expect(rows[1]).toMatchObject({ steps: 2, size_bytes: 20, warnings: 2, unread: 0 }));
  it("name equal devices once", () => expect(rows.map(deviceText)).toEqual(["2 × H100, A100", "cpu", null]));
  it("are sorted with unknown values last", () => {
    expect(names(arrange(rows, "", [{ column: "step", descending: false }]))).toEqual(["old", "new", "middle"]);
    expect(names(arrange(rows, "", newest))).toEqual(["new", "middle", "old"]);
  });
  it("are sorted by several columns", () => {
    const keys = [
      { column: "framework", descending: false },
      { column: "warnings", descending: true },
      { column: "date", descending: false },
    ];
    expect(names(arrange(rows, "", keys))).toEqual(["new", "old", "middle"]);
  });
  it("have no value while the numbers of a run are requested", () => {
    expect(rows.map((row) => cellOf(row, "step"))).toEqual([30, null, undefined]);
    expect(rows.map((row) => cellOf(row, "warnings"))).toEqual([null, 2, null]);
  });
  it("are searched by all words in name, framework and device", () => {
    expect(names(arrange(rows, "pytorch h100", newest))).toEqual(["old"]);
    expect(names(arrange(rows, "gone", newest))).toEqual([]);
  });
});
