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
  return { ...(await import("./compare")), ...(await import("../compare/choice")) };
}

async function after_click(click: () => void): Promise<object> {
  click();
  await new Promise((done) => setTimeout(done, 5));
  return router.currentRoute.value.query;
}

describe("what a run is compared with", () => {
  let stop: () => void;

  beforeEach(async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(answer))));
    const { start_polling } = await import("./runs");
    stop = start_polling();
    await new Promise((done) => setTimeout(done, 5));
  });
  afterEach(() => {
    stop();
    vi.unstubAllGlobals();
  });

  it("is nothing until the address names it", async () => {
    const compare = await at("/overview?run=after");
    expect([
      compare.base_run.value,
      compare.obstacle.value,
      compare.compared_query.value,
      compare.has_bases.value,
    ]).toEqual([null, null, null, true]);
  });

  it("is the worker of the same place unless the address names another", async () => {
    const compare = await at("/overview?run=after&worker=w1&base=before");
    expect(compare.compared_query.value).toEqual({
      run: "after",
      worker: "w1",
      span: "d",
      step: null,
      base: "before",
      base_worker: "w1",
      base_span: "b",
      base_step: null,
    });
    await at("/overview?run=after&worker=w1&base=before&base_worker=w0");
    expect(compare.compared_query.value).toMatchObject({ base_worker: "w0", base_span: "a" });
  });

  it("has the step of the chosen one's name, else of its place, else its last", async () => {
    const compare = await at("/overview?run=after&base=before&step=5");
    expect(compare.base_query.value).toEqual({ run: "before", worker: "w0", span: "a", step: "5" });
    await at("/overview?run=later&base=before&base_worker=w1&step=15");
    expect(compare.compared_query.value).toMatchObject({ step: "15", base_step: "5" });
    await at("/overview?run=later&base=before&base_worker=w1&step=17");
    expect(compare.compared_query.value).toMatchObject({ step: "17", base_step: "6" });
  });

  it.each([
    ["gone", "base=nowhere"],
    ["same", "base=after"],
    ["unreadable", "base=broken"],
    ["apart", "base=memory"],
  ])("cannot be asked for: %s", async (reason, base) => {
    const compare = await at(`/overview?run=after&${base}`);
    expect([compare.obstacle.value, compare.compared_query.value]).toEqual([reason, null]);
  });

  it("is waited for while it is read", async () => {
    const compare = await at("/overview?run=after&base=read");
    expect(compare.compared_query.value).toMatchObject({ base: "read", base_span: "g" });
  });

  it("may be another worker of the same run", async () => {
    const compare = await at("/overview?run=after");
    const { runs } = await import("./runs");
    expect(runs.value.slice(0, 4).map(compare.obstacle_of)).toEqual([null, null, null, "unreadable"]);
    expect(await after_click(() => compare.choose_base("after"))).toEqual({
      run: "after",
      base: "after",
      base_worker: "w1",
      base_span: "d",
    });
    expect(compare.obstacle.value).toBe(null);
  });

  it("changes places with what is shown by one click, and back", async () => {
    const compare = await at("/kernel?run=after&base=before&base_worker=w1&search=conv");
    expect(await after_click(compare.swap_base)).toEqual({
      run: "before",
      worker: "w1",
      span: "b",
      base: "after",
      base_worker: "w0",
      base_span: "c",
      search: "conv",
    });
    expect(await after_click(compare.swap_base)).toEqual({
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
    expect(await after_click(compare.remove_base)).toEqual({ run: "after", search: "conv" });
  });

  it("goes along to the other pages", async () => {
    await at("/kernel?run=after&base=before&base_worker=w1&search=conv");
    const { page_location } = await import("./address");
    expect(page_location("overview")).toEqual({
      path: "/overview",
      query: { run: "after", base: "before", base_worker: "w1" },
    });
  });
});
