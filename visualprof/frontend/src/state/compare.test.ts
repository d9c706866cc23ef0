import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { nextTick } from "vue";
import type { ChangesAnswer, Run, Span } from "../api/model";
import { router } from "../router";

function span(
  id: string,
  views: string[] = ["overview"],
  state: Span["state"] = "ready",
  steps: string[] = ["5"],
): Span {
  return {
    id,
    name: id,
    file: id,
    size_bytes: 1,
    modified_ns: 1,
    state,
    progress: 1,
    format: "kineto",
    framework: "pytorch",
    events: 1,
    duration_ns: 1,
    steps,
    views,
    warnings: [],
    error: null,
    hint: null,
  };
}

const run = (id: string, ...workers: Span[][]): Run => ({
  id,
  name: id,
  frameworks: [],
  live: false,
  series: false,
  data: false,
  modified_ns: 1,
  workers: workers.map((spans, i) => ({ id: `w${i}`, name: `w${i}`, rank: i, spans })),
});

const answer: ChangesAnswer = {
  revision: 1,
  since: null,
  removed: [],
  skipped: [],
  runs: [
    run("before", [span("a")], [span("b", ["overview"], "ready", ["5", "6"])]),
    run("after", [span("c")], [span("d")]),
    run("later", [span("l", ["overview"], "ready", ["15", "16", "17"])]),
    run("broken", [span("e", [], "failed")]),
    run("memory", [span("f", ["memory"])]),
    run("read", [span("g", [], "parsing")]),
  ],
};

async function at(address: string) {
  await router.push(address);
  await nextTick();
  return { ...(await import("./compare")), ...(await import("../compare/base-choice")) };
}

async function afterClick(click: () => void): Promise<object> {
  click();
  await new Promise((done) => setTimeout(done, 5));
  return router.currentRoute.value.query;
}

describe("the base of a run", () => {
  let stop: () => void;

  beforeEach(async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(answer))));
    const { startPolling } = await import("./runs");
    stop = startPolling();
    await new Promise((done) => setTimeout(done, 5));
  });
  afterEach(() => {
    stop();
    vi.unstubAllGlobals();
  });

  it("is missing until the address names it", async () => {
    const compare = await at("/overview?run=after");
    expect([
      compare.baseRun.value,
      compare.obstacle.value,
      compare.comparedQuery.value,
      compare.hasBases.value,
    ]).toEqual([null, null, null, true]);
  });

  it("is the worker at the same position unless the address names another", async () => {
    const compare = await at("/overview?run=after&worker=w1&base=before");
    expect(compare.comparedQuery.value).toEqual({
      run: "after",
      worker: "w1",
      span: "d",
      step: null,
      step_range: null,
      base: "before",
      base_worker: "w1",
      base_span: "b",
      base_step: null,
    });
    await at("/overview?run=after&worker=w1&base=before&base_worker=w0");
    expect(compare.comparedQuery.value).toMatchObject({ base_worker: "w0", base_span: "a" });
  });

  it("has the step of the same name, or at the same position, or the last one", async () => {
    const compare = await at("/overview?run=after&base=before&step=5");
    expect(compare.baseQuery.value).toEqual({ run: "before", worker: "w0", span: "a", step: "5", step_range: null });
    await at("/overview?run=later&base=before&base_worker=w1&step=15");
    expect(compare.comparedQuery.value).toMatchObject({ step: "15", base_step: "5" });
    await at("/overview?run=later&base=before&base_worker=w1&step=17");
    expect(compare.comparedQuery.value).toMatchObject({ step: "17", base_step: "6" });
  });

  it.each([
    ["gone", "base=nowhere"],
    ["same", "base=after"],
    ["unreadable", "base=broken"],
    ["apart", "base=memory"],
  ])("cannot be requested: %s", async (reason, base) => {
    const compare = await at(`/overview?run=after&${base}`);
    expect([compare.obstacle.value, compare.comparedQuery.value]).toEqual([reason, null]);
  });

  it("is awaited while it is being read", async () => {
    const compare = await at("/overview?run=after&base=read");
    expect(compare.comparedQuery.value).toMatchObject({ base: "read", base_span: "g" });
  });

  it("can be another worker of the same run", async () => {
    const compare = await at("/overview?run=after");
    const { runs } = await import("./runs");
    expect(runs.value.slice(0, 4).map(compare.runObstacle)).toEqual([null, null, null, "unreadable"]);
    expect(await afterClick(() => compare.chooseBase("after"))).toEqual({
      run: "after",
      base: "after",
      base_worker: "w1",
      base_span: "d",
    });
    expect(compare.obstacle.value).toBe(null);
  });

  it("is swapped with the run by one click, and back", async () => {
    const compare = await at("/kernel?run=after&base=before&base_worker=w1&search=conv");
    expect(await afterClick(compare.swapBase)).toEqual({
      run: "before",
      worker: "w1",
      span: "b",
      base: "after",
      base_worker: "w0",
      base_span: "c",
      search: "conv",
    });
    expect(await afterClick(compare.swapBase)).toEqual({
      run: "after",
      worker: "w0",
      span: "c",
      base: "before",
      base_worker: "w1",
      base_span: "b",
      search: "conv",
    });
  });

  it("is removed by one click", async () => {
    const compare = await at("/kernel?run=after&base=before&base_worker=w1&base_span=b&search=conv");
    expect(await afterClick(compare.removeBase)).toEqual({ run: "after", search: "conv" });
  });

  it("is kept on the other pages", async () => {
    await at("/kernel?run=after&base=before&base_worker=w1&search=conv");
    const { pageLocation } = await import("./address");
    expect(pageLocation("overview")).toEqual({
      path: "/overview",
      query: { run: "after", base: "before", base_worker: "w1" },
    });
  });
});
