import { describe, expect, it } from "vitest";
import type { Run } from "../../api";
import { arrange, deviceText, toRow } from "./rows";

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
const names = (list: typeof rows) => list.map((row) => row.run.id);

describe("the rows of the list of runs", () => {
  it("add up the files of a run", () =>
    expect(rows[1]).toMatchObject({ steps: 2, size_bytes: 20, warnings: 2, unread: 0 }));
  it("name equal devices once", () => expect(rows.map(deviceText)).toEqual(["2 × H100, A100", "cpu", null]));
  it("are sorted with unknown values last", () => {
    expect(names(arrange(rows, "", "step", "asc"))).toEqual(["old", "new", "middle"]);
    expect(names(arrange(rows, "", "date", "desc"))).toEqual(["new", "middle", "old"]);
  });
  it("are searched by all words in name, framework and device", () => {
    expect(names(arrange(rows, "pytorch h100", "date", "desc"))).toEqual(["old"]);
    expect(names(arrange(rows, "gone", "date", "desc"))).toEqual([]);
  });
});
