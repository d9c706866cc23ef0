import { afterEach, describe, expect, it, vi } from "vitest";
import type { ChangesAnswer, Run, RunsAnswer } from "../api/model";
import { router } from "../router";
import { startPolling, mergeChanges } from "./runs";

function run(id: string, modifiedNs = 1): Run {
  return {
    id,
    name: id,
    frameworks: [],
    modified_ns: modifiedNs,
    live: false,
    series: false,
    data: false,
    workers: [],
  };
}

const unreadable = { file: "notes.json", error: "no profile", hint: null };
const previous: RunsAnswer = { revision: 5, runs: [run("a"), run("b"), run("c")], skipped: [unreadable] };
const nothing: ChangesAnswer = { revision: 6, since: 5, runs: [], removed: [], skipped: null };

describe("changes of the runs", () => {
  it("are merged, and other runs stay the same objects", () => {
    const now = mergeChanges(previous, { ...nothing, runs: [run("b", 2), run("d")], removed: ["a"] });
    expect(now.runs.map((item) => `${item.id}${item.modified_ns}`)).toEqual(["b2", "c1", "d1"]);
    expect(now.runs[1]).toBe(previous.runs[2]);
    expect([now.revision, now.skipped]).toEqual([6, [unreadable]]);
  });

  it("replace everything if the server no longer knows the revision", () => {
    expect(mergeChanges(previous, { ...nothing, since: null, runs: [run("new")], skipped: [] })).toEqual({
      revision: 6,
      runs: [run("new")],
      skipped: [],
    });
  });

  it("contain everything at first", () => {
    expect(mergeChanges(null, { ...nothing, since: null, runs: [run("a")], skipped: [unreadable] }).runs).toEqual([
      run("a"),
    ]);
  });
});

describe("the request for changes", () => {
  afterEach(() => vi.unstubAllGlobals());

  it("sends the known revision and the shown run, immediately while that is being read", async () => {
    const waiting = { ...run("b"), workers: [{ id: "w", name: "w", rank: null, spans: [{ state: "waiting" }] }] };
    const requests: string[] = [];
    vi.stubGlobal("fetch", (url: string) => {
      requests.push(url);
      return Promise.resolve(
        new Response(JSON.stringify({ ...nothing, since: null, runs: [run("a"), waiting], skipped: [] })),
      );
    });
    await router.push("/overview?run=a");
    const stop = startPolling();
    await vi.waitFor(() => expect(requests).toEqual(["api/v1/runs/changes?shown=a"]));
    await new Promise((done) => setTimeout(done, 20));
    await router.push("/overview?run=b");
    await vi.waitFor(() => expect(requests[1]).toBe("api/v1/runs/changes?since=6&shown=b"), { timeout: 500 });
    stop();
  });
});
