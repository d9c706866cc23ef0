import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { nextTick } from "vue";
import type { ChangesAnswer, Run, Span } from "../api/model";
import { router } from "../router";

function span(id: string, steps: string[], state: Span["state"] = "ready"): Span {
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
    views: ["overview"],
    warnings: [],
    error: null,
    hint: null,
  };
}

function run(id: string, modifiedNs: number, spans: Span[]): Run {
  return {
    id,
    name: id,
    frameworks: [],
    modified_ns: modifiedNs,
    live: false,
    series: false,
    data: false,
    workers: [{ id: "w0", name: "w0", rank: 0, spans }],
  };
}

const answer: ChangesAnswer = {
  revision: 1,
  since: null,
  removed: [],
  skipped: [],
  runs: [
    run("old", 1, [span("a", ["5", "6"]), span("b", ["7"])]),
    run("newest", 3, [span("a", [], "growing")]),
    run("new", 2, [span("a", ["5"])]),
    run("begun", 0, [{ ...span("a", [], "growing"), views: [] }]),
  ],
};

async function settle(): Promise<void> {
  await new Promise((done) => setTimeout(done, 5));
  await nextTick();
}

describe("selection", () => {
  let stop: () => void;

  beforeEach(async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(answer), { headers: { ETag: '"1"' } })));
    await router.push("/overview");
    const { startPolling } = await import("./runs");
    stop = startPolling();
    await settle();
  });
  afterEach(() => {
    stop();
    vi.unstubAllGlobals();
  });

  it("shows the newest ready run until the address names one", async () => {
    const { run: selected, sortedRuns } = await import("./selection");
    expect(selected.value?.id).toBe("new");
    expect(sortedRuns.value.map((item) => item.id)).toEqual(["newest", "new", "old", "begun"]);
  });

  it("follows the address, and ignores a step that the file does not have", async () => {
    const { run: selected, span: chosen, step } = await import("./selection");
    await router.push("/overview?run=old&span=b&step=5");
    expect([selected.value?.id, chosen.value?.id, step.value]).toEqual(["old", "b", null]);
  });

  it("goes through all steps: the first, the second", async () => {
    const { moveStep, step } = await import("./selection");
    await router.push("/overview?run=old");
    const states: (string | null)[] = [];
    for (const delta of [1, 1, 1, -1] as const) {
      moveStep(delta);
      await settle();
      states.push(step.value);
    }
    expect(states).toEqual(["5", "6", "6", "5"]);
  });

  it("requests views with the ranges that the address names as steps", async () => {
    const { moveStep, selectStepRange, step, stepRange } = await import("./selection");
    const { viewAddress } = await import("./view-resource");
    await router.push("/overview?run=old&step=5");
    expect(viewAddress("view/overview")).not.toContain("step_range");
    selectStepRange(" train_* ");
    await settle();
    expect([stepRange.value, step.value]).toEqual(["train_*", null]);
    expect(viewAddress("charts/overview")).toContain("step_range=train_*");
    expect(viewAddress("diff")).toBeNull();
    await router.push("/overview?run=old&step=0&step_range=train_*");
    moveStep(1);
    await settle();
    expect(step.value).toBe("0");
    selectStepRange("");
    await settle();
    expect(router.currentRoute.value.query).toEqual({ run: "old" });
  });

  it("clears span and step when another run is chosen", async () => {
    const { selectRun } = await import("./selection");
    await router.push("/operator?run=old&span=b&step=7&search=conv");
    selectRun("new");
    await settle();
    expect(router.currentRoute.value.query).toEqual({ run: "new", search: "conv" });
  });

  it("can be shown while it is still being written, once some of it is known", async () => {
    const { viewable } = await import("./selection");
    await router.push("/overview?run=newest");
    expect(viewable.value).toBe(true);
    await router.push("/overview?run=begun");
    expect(viewable.value).toBe(false);
  });

  it("reports a run that was deleted", async () => {
    const { missingRun } = await import("./selection");
    await router.push("/overview?run=deleted");
    expect(missingRun.value).toBe("deleted");
  });
});
