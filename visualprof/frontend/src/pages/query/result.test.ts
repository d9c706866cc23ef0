import { createApp, nextTick } from "vue";
import { beforeAll, describe, expect, it, vi } from "vitest";
import type { Cell } from "../../api/model";
import type { Column } from "../../components";
import { ALL_TEXTS, setLanguage } from "../../locales";
import { router } from "../../router";
import type { Schema } from "./completion";
import { axisColumns, binCounts, canDraw, completeChoice, createChart, MAX_BARS } from "./result-chart";
import { eventColumn, rowLocation, type QueryAnswer } from "./result-links";
import Result from "./result.vue";

const column = (name: string, kind: Column["kind"], numeric = true): Column => ({
  name,
  label: name,
  hint: "",
  kind,
  numeric,
  widthPx: 80,
  maxWidth: "80px",
});
const columns = [column("id", "id"), column("name", "name", false), column("calls", "count"), column("dur", "ns")];

function answerOf(cells: Record<string, Cell[]>, more: Partial<QueryAnswer> = {}): QueryAnswer {
  return {
    columns: cells as QueryAnswer["columns"],
    types: Object.fromEntries(Object.keys(cells).map((name) => [name, name === "name" ? "VARCHAR" : "BIGINT"])),
    kinds: {},
    total_rows: Object.values(cells)[0]?.length ?? 0,
    truncated: false,
    elapsed_ns: 1_500_000,
    sql: "",
    traces: [{ trace: 0, worker: "rank0", span: "1", first_id: 0, events: 100 }],
    ...more,
  };
}

const schema = {
  tables: [
    { name: "kernel", has_events: true, columns: [] },
    { name: "step", has_events: false, columns: [] },
  ],
} as unknown as Schema;
const rowOf = (values: Record<string, Cell>) => Object.assign((name: string) => values[name], { index: 0 });

describe("the chart of a result", () => {
  it("draws times rather than counts, and no ids", () => {
    expect(completeChoice(columns, { kind: "bar", x: "", y: "" })).toEqual({ kind: "bar", x: "name", y: "dur" });
    expect(completeChoice(columns, { kind: "scatter", x: "", y: "calls" })).toEqual({
      kind: "scatter",
      x: "calls",
      y: "calls",
    });
    expect(axisColumns(columns, "histogram", "x").map(({ name }) => name)).toEqual(["id", "calls", "dur"]);
    expect(canDraw([column("name", "name", false)], "bar")).toBe(false);
  });

  it("has the rows in the order of the table, and the units of its columns", () => {
    const cells = { name: ["a", null, "c"], dur: [1, 2, 3] };
    const chart = createChart(cells, [2, 1, 0], columns, { kind: "bar", x: "name", y: "dur" });
    expect(chart["xAxis"]).toMatchObject({ data: ["c", "–", "a"] });
    expect(chart["yAxis"]).toMatchObject({ axisLabel: { formatter: "@f:ns" } });
    expect(chart["series"]).toMatchObject([{ type: "bar", data: [3, 2, 1] }]);
  });

  it("has a limited number of bars", () => {
    const many = [...Array(80).keys()];
    const chart = createChart({ name: many.map(String), dur: many }, many, columns, {
      kind: "bar",
      x: "name",
      y: "dur",
    });
    expect(chart["series"]).toMatchObject([{ data: many.slice(0, MAX_BARS) }]);
  });

  it("leaves out points without a value, and orders lines by x", () => {
    const cells = { calls: [3, 1, null, 2], dur: [30, 10, 5, null] };
    const chart = createChart(cells, [0, 1, 2, 3], columns, { kind: "line", x: "calls", y: "dur" });
    expect(chart["series"]).toMatchObject([
      {
        data: [
          [1, 10],
          [3, 30],
        ],
      },
    ]);
  });

  it("counts every value of a histogram once", () => {
    expect(binCounts([])).toEqual({ edges: [], counts: [] });
    expect(binCounts([5, 5])).toEqual({ edges: [5, 6], counts: [2] });
    const { edges, counts } = binCounts([0, 1, 2, 3, 10]);
    expect([edges[0], edges.at(-1)]).toEqual([0, 10]);
    expect(edges.length).toBe(counts.length + 1);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(5);
  });
});

describe("a row of a result", () => {
  const answer = answerOf(
    { id: [7], op_id: [3], ts: [1000], dur: [50] },
    {
      traces: [
        { trace: 0, worker: "rank0", span: "1", first_id: 0, events: 100 },
        { trace: 1, worker: "rank1", span: "1", first_id: 100, events: 50 },
      ],
    },
  );

  it("is an event if all tables of the statement have events", () => {
    expect(eventColumn(answer, "SELECT * FROM kernel", schema)).toBe("id");
    expect(eventColumn(answer, "SELECT s.id FROM step s JOIN kernel k ON true", schema)).toBe("op_id");
    expect(eventColumn(answerOf({ id: [1] }), "SELECT id FROM step", schema)).toBeNull();
  });

  it("leads to its event in the trace of the id", () => {
    expect(rowLocation(answer, "id", rowOf({ id: 107 }))).toMatchObject({ path: "/trace", query: { sel: "0.7" } });
    expect(rowLocation(answer, "id", rowOf({ id: 150 }))).toBeNull();
    expect(rowLocation(answer, "id", rowOf({ id: null }))).toBeNull();
  });

  it("without an event leads to its time, if one trace was asked", () => {
    const single = answerOf({ ts: [1000], dur: [50] });
    const row = rowOf({ ts: 1000, dur: 50 });
    expect(rowLocation(single, null, row)).toMatchObject({ path: "/trace", query: { win: "1000~1050" } });
    expect(rowLocation(answer, null, row)).toBeNull();
    expect(rowLocation(single, null, rowOf({ ts: null, dur: 5 }))).toBeNull();
  });
});

describe("the card of a result", () => {
  beforeAll(() => setLanguage("en", ALL_TEXTS));

  async function mount(answer: QueryAnswer): Promise<{ host: HTMLElement; download: ReturnType<typeof vi.fn> }> {
    const download = vi.fn();
    const host = document.body.appendChild(document.createElement("div"));
    createApp(Result, { answer, sql: "SELECT", schema, busy: false, onDownload: download })
      .directive("tip", {})
      .use(router)
      .mount(host);
    await nextTick();
    return { host, download };
  }

  it("names its columns as the statement does, and says how long it took", async () => {
    const { host } = await mount(answerOf({ name: ["a", "b"], total_ns: [1, 2] }, { kinds: { total_ns: "ns" } }));
    expect(host.textContent).toMatch(/2 rows · 1\.50\sms/);
    expect([...host.querySelectorAll("[role=columnheader]")].map((head) => head.textContent?.trim())).toEqual([
      "name",
      "total_ns",
    ]);
    expect([...host.querySelectorAll("[role=radio]")].map((button) => button.textContent?.trim())).toEqual([
      "Table",
      "Bars",
      "Line",
      "Scatter",
      "Histogram",
    ]);
    expect(host.textContent).not.toContain("Only the first");
  });

  it("says that the server has more rows", async () => {
    const { host } = await mount(answerOf({ id: [1] }, { truncated: true }));
    expect(host.textContent).toContain("Only the first 1 rows are shown.");
  });

  it("of no rows has neither a table nor charts", async () => {
    const { host } = await mount(answerOf({ dur: [] }));
    expect(host.textContent).toContain("The statement returned no rows.");
    expect(host.querySelectorAll("[role=radio]").length).toBe(0);
  });

  it("is saved as a file", async () => {
    const { host, download } = await mount(answerOf({ id: [1] }));
    for (const button of host.querySelectorAll("button"))
      if (button.textContent === "CSV" || button.textContent === "Parquet") button.click();
    expect(download.mock.calls).toEqual([["csv"], ["parquet"]]);
  });
});
