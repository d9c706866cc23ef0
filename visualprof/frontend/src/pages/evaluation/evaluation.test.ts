import { describe, expect, it } from "vitest";
import type { ReportRow } from "../../api/model";
import { reportLabels, joinList, newestReports, parseList, parsePoint } from "../../state/selected-reports";
import { ALL_TEXTS, setLanguage } from "../../locales";
import { withLatencyAxis, withLimit } from "./latency-limit";
import { earlierText, listedReports } from "./report-history";
import { loadFacts, orderedRows, missingSamples, valueText } from "./points";

function report(id: string, more: Partial<ReportRow> = {}): ReportRow {
  return {
    id,
    job: "j",
    name: "model",
    model: "m.onnx",
    model_sha256: "0",
    spec: "s",
    backend: "",
    version: "",
    device: "cpu",
    agent: "",
    precision: "",
    state: "succeeded",
    finished_ns: 0,
    points: 1,
    serving: 0,
    best_batch: 1,
    best_samples_per_s: 1,
    run: null,
    sample: false,
    configuration: id,
    newest: true,
    earlier: [],
    earlier_least_samples_per_s: null,
    earlier_most_samples_per_s: null,
    ...more,
  };
}

describe("reports in the address", () => {
  it("keep commas and percent signs in their ids", () => {
    const ids = ["a,b", "50%", "%2C", "run/一"];
    expect(parseList(joinList(ids))).toEqual(ids);
  });
  it("can be plain ids with commas between them", () => expect(parseList("j/a,j/b,,j/a")).toEqual(["j/a", "j/b"]));
  it("are those of the newest job until others are chosen", () => {
    const reports = [
      report("new/a", { job: "2" }),
      report("new/empty", { job: "2", points: 0 }),
      report("old", { job: "1" }),
    ];
    expect(newestReports(reports)).toEqual(["new/a"]);
    expect(newestReports(reports, "old"), "unless a run of another is open").toEqual(["old"]);
    expect(newestReports(reports, "a trace")).toEqual(["new/a"]);
    expect(
      newestReports([report("making", { job: "3", points: 0, state: "running" }), ...reports]),
      "one that runs, before its first point",
    ).toEqual(["making"]);
  });
});

describe("reportLabels", () => {
  it("are the specs, with the job's name or finally the id if several are equal", () => {
    expect([...reportLabels([report("1", { spec: "a" }), report("2", { spec: "b" })]).values()]).toEqual(["a", "b"]);
    expect([...reportLabels([report("1", { name: "x" }), report("2", { name: "y" })]).values()]).toEqual([
      "x / s",
      "y / s",
    ]);
    expect([...reportLabels([report("1"), report("2")]).values()]).toEqual(["1", "2"]);
  });
});

describe("reports of equal configuration", () => {
  const newest = report("new", {
    earlier: ["b", "a"],
    earlier_least_samples_per_s: 934.2,
    earlier_most_samples_per_s: 1011,
  });
  const reports = [newest, report("b", { newest: false }), report("other"), report("a", { newest: false })];
  it("are one line with the earlier ones as its history", () =>
    expect(listedReports(reports).map(({ report, earlier }) => [report.id, earlier.map(({ id }) => id)])).toEqual([
      ["new", ["b", "a"]],
      ["other", []],
    ]));
  it("leave out earlier reports that the list does not have", () =>
    expect(listedReports(reports.slice(0, 2))[0]?.earlier.map(({ id }) => id)).toEqual(["b"]));
  it("say how many earlier ones there are, and their range", async () => {
    await setLanguage("en", ALL_TEXTS);
    expect(earlierText(newest)).toBe("2 earlier · 934 – 1,011/s");
    expect(earlierText(report("x", { earlier: ["y"] }))).toBe("1 earlier");
  });
});

describe("points", () => {
  it("are found by the id in charts, whatever the report is called", () =>
    expect(parsePoint("a|b/c|16")).toEqual({ report: "a|b/c", batch: 16 }));
  it("of a line have no id", () => expect(parsePoint("anything")).toBeNull());
  it("are sorted by any column, with unknown values last", () => {
    const table = { batch: [1, 2, 4], p99_ns: [30, null, 10] };
    expect(orderedRows(table, [{ column: "p99_ns", descending: false }])).toEqual([2, 0, 1]);
    expect(orderedRows(table, [{ column: "p99_ns", descending: true }])).toEqual([0, 2, 1]);
    expect(orderedRows(table, [])).toEqual([0, 1, 2]);
  });
  it("have no percentile if there are too few samples for it", () => {
    expect(missingSamples("p99_ns", 661)).toBe(662);
    expect(missingSamples("p99_ns", 662)).toBeNull();
    expect(missingSamples("rss_bytes", 1)).toBeNull();
  });
});

describe("a load", () => {
  const facts = { scenario: "closed", concurrency: 1, verdict: null, qps: 5 } as unknown as Parameters<
    typeof loadFacts
  >[0];
  it("has no facts if runs did not overlap", () => expect(loadFacts(facts)).not.toHaveProperty("scenario"));
  it("uses the texts of the locale", async () => {
    await setLanguage("en", ALL_TEXTS);
    expect(loadFacts({ ...facts, concurrency: 4, verdict: "FAIL" })).toMatchObject({
      concurrency: 4,
      verdict: "exceeded",
      scenario: "closed loop",
    });
    expect([valueText("verdict", "PASS"), valueText("scenario", "Server"), valueText("spec", "pass")]).toEqual([
      "met",
      "Server",
      "pass",
    ]);
  });
});

describe("withLatencyAxis", () => {
  it("names the axis by the quantity of all its lines", () =>
    expect(withLatencyAxis({ latency: { yAxis: { name: "p50" } } })).toEqual({
      latency: { yAxis: { name: "@t:evaluation.latency" } },
    }));
});

describe("withLimit", () => {
  const charts = { latency: { series: [] }, throughput: { series: [] } };
  it("draws a line if latency has an axis", () => {
    const dressed = withLimit(charts, 5);
    expect(dressed["throughput"]).toEqual({ series: [] });
    expect(JSON.stringify(dressed["latency"])).toContain('"yAxis":5');
  });
  it("draws the limit of the loads only in their chart", () => {
    const dressed = withLimit({ ...charts, load: { series: [] } }, 0, 7);
    expect(JSON.stringify(dressed["load"])).toContain('"yAxis":7');
    expect(dressed["latency"]).toEqual({ series: [] });
  });
  it("draws nothing without a limit", () => expect(withLimit(charts, 0)).toBe(charts));
});
