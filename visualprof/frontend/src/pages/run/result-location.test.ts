import { describe, expect, it } from "vitest";
import type { Run } from "../../api/model";
import { resultLocation } from "./result-location";

function run(...workers: [id: string, views: string[]][]): Run {
  const span = (views: string[]) => ({
    id: "1",
    name: "1",
    file: "",
    size_bytes: 0,
    modified_ns: 0,
    state: "ready" as const,
    progress: 1,
    format: null,
    framework: null,
    events: null,
    duration_ns: null,
    steps: [],
    views,
    warnings: [],
    error: null,
    hint: null,
  });
  return {
    id: "j/s",
    name: "j/s",
    frameworks: [],
    modified_ns: 0,
    live: false,
    series: false,
    data: false,
    workers: workers.map(([id, views]) => ({ id, name: id, rank: null, spans: [span(views)] })),
  };
}

describe("resultLocation", () => {
  it("is the overview of the first file that has one", () =>
    expect(resultLocation(run(["monitor", ["trace"]], ["timeline", ["overview", "trace"]]))).toEqual({
      path: "/overview",
      query: { run: "j/s", worker: "timeline" },
    }));
  it("is the timeline if there is only the monitor's recording", () =>
    expect(resultLocation(run(["monitor", ["trace"]]))).toEqual({ path: "/trace", query: { run: "j/s" } }));
  it("is null while a file is being read", () => {
    const finishedRun = run(["monitor", ["trace"]], ["timeline", []]);
    const [, timeline] = finishedRun.workers;
    if (timeline?.spans[0]) timeline.spans[0].state = "parsing";
    expect(resultLocation(finishedRun)).toBeNull();
  });
  it("is the overview of a file that nobody has started to read, which is loaded when opened", () => {
    const emptyRun = run(["timeline", []]);
    for (const worker of emptyRun.workers) for (const span of worker.spans) span.state = "waiting";
    expect(resultLocation(emptyRun)).toEqual({ path: "/overview", query: { run: "j/s" } });
  });
  it("is null until some file was read", () => {
    expect(resultLocation(run(["timeline", []]))).toBeNull();
    expect(resultLocation(undefined)).toBeNull();
  });

  it("of a failed task is never a timeline of CPU counters", () => {
    expect(resultLocation(run(["monitor", ["trace"]]), true)).toBeNull();
    expect(resultLocation(run(["monitor", ["trace"]], ["timeline", ["overview", "trace"]]), true)).not.toBeNull();
  });
});
