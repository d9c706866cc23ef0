import { describe, expect, it } from "vitest";
import type { Table } from "../api/model";
import { ReportFile } from "./offline-report";
import { selectRows, toDelimitedText } from "./rows";

const TABLE = {
  columns: { name: ["aten::mm", "=b", "Aten::add", "c"], calls: [3, 1, null, 20] },
  kinds: { name: "name", calls: "count" },
  total_rows: 9,
} as unknown as Table;
const names = (query: string) => selectRows(TABLE, new URLSearchParams(query)).columns["name" as never] as unknown;

/** A file as visualprof/server/report.py writes it. */
function file(answers: object, tiles: Record<string, [number, number]> = {}, blob: number[] = []): ArrayBuffer {
  const text = new TextEncoder().encode(
    JSON.stringify({
      answers,
      tiles,
      names: { 1: "one", 3: "three" },
      steps: ["4"],
      first: {},
      run: "r",
      base: "b",
      made_ms: 0,
    }),
  );
  const bytes = new Uint8Array(4 + text.length + blob.length);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  bytes.set(blob, 4 + text.length);
  return bytes.buffer;
}

const VIEWS = {
  views: [
    {
      name: "operator",
      subject: "trace",
      charts: true,
      parameters: [{ name: "group", type: "choice", default: "name", choices: null }],
    },
  ],
};
const reportFile = new ReportFile(
  file(
    {
      views: VIEWS,
      "view/operator": { ...TABLE, kind: "x", parts: TABLE },
      "view/operator&group=shape": { ...TABLE, total_rows: 1 },
      "charts/operator&top=5": { charts: {} },
      "diff&view=operator": { view: "operator", rows: TABLE },
    },
    { "g2/7/1": [1, 3], "g2/9/0": [0, 1] },
    [9, 1, 2, 3],
  ),
);
const ask = (url: string) => reportFile.answer(`api/v1/${url}`);

describe("rows of a report", () => {
  it("are sorted with unknown values last, in both orders", () => {
    expect(names("sort=calls&order=desc")).toEqual(["c", "aten::mm", "=b", "Aten::add"]);
    expect(names("sort=calls&order=asc")).toEqual(["=b", "aten::mm", "c", "Aten::add"]);
    expect(names("sort=name&order=asc")).toEqual(["=b", "Aten::add", "aten::mm", "c"]);
  });

  it("are searched, filtered and paged, with the number of matches", () => {
    expect(names("search=ATEN")).toEqual(["aten::mm", "Aten::add"]);
    expect(names("is.name=c")).toEqual(["c"]);
    expect(names("min.calls=2&max.calls=10")).toEqual(["aten::mm"]);
    const page = selectRows(TABLE, new URLSearchParams("search=&offset=1&limit=2"));
    expect(page).toMatchObject({ columns: { name: ["=b", "Aten::add"] }, matching_rows: 4, total_rows: 9 });
  });

  it("contain no formulas for spreadsheets", () =>
    expect(toDelimitedText(TABLE, ",").split("\n").slice(0, 3)).toEqual(["name,calls", "aten::mm,3", "'=b,1"]));
});

describe("the content of a report", () => {
  it("is found regardless of the page's own parameters", async () => {
    expect(await ask("view/operator?run=r&group=name&sort=calls&limit=1").json()).toMatchObject({
      kind: "x",
      columns: { name: ["c"] },
      total_rows: 9,
    });
    expect(await ask("view/operator?run=r&group=shape").json()).toMatchObject({ total_rows: 1 });
    expect(await ask("view/operator?table=parts&sort=calls&limit=1").json()).toMatchObject({
      columns: { name: ["c"] },
    });
    expect(await ask("charts/operator?run=r&top=5").json()).toEqual({ charts: {} });
    expect(await ask("view/operator?table=parts&format=csv&limit=1").text()).toBe("name,calls\naten::mm,3\n");
    expect(await ask("timeline/strings?offset=1&limit=3").json()).toEqual({ strings: ["one", "", "three"] });
  });

  it("is limited to one run and its comparison", async () => {
    expect(await ask("diff?run=r&base=b&base_worker=w&view=operator&group=name&limit=1").json()).toMatchObject({
      view: "operator",
    });
    expect(await ask("diff?run=r&base=b&view=operator&table=rows&sort=calls&limit=1").json()).toMatchObject({
      columns: { name: ["c"] },
    });
    expect(ask("view/operator?run=b").status).toBe(404);
  });

  it("answers nothing else", () => {
    expect(ask("view/operator?run=r&step=3").status).toBe(404);
    expect(ask("view/operator?table=none").status).toBe(404);
    expect(ask("jobs").status).toBe(404);
    expect(reportFile.hasStep("4") && !reportFile.hasStep("3")).toBe(true);
  });

  it("includes the tile of the timeline, or a coarser one", async () => {
    expect(reportFile.nearestTile("g", 2, 7, 1)).toEqual([7, 1]);
    expect(reportFile.nearestTile("g", 2, 5, 6)).toEqual([7, 1]);
    expect(reportFile.nearestTile("g", 2, 5, 9)).toEqual([9, 0]);
    expect([...new Uint8Array(await ask("timeline/tile?group=2&level=7&index=1").arrayBuffer())]).toEqual([1, 2, 3]);
    expect(ask("timeline/tile?group=3&level=7&index=1").status).toBe(404);
  });
});
