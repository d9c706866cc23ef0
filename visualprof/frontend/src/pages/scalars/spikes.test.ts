import { expect, test } from "vitest";
import type { RecordedRange, Run, ScalarLine } from "../../api";
import { isStepTime, nearestRecording, runPlace, spikesOf, stepName } from "./spikes";

test("tags of step times are known by their words", () => {
  const named = ["steps/step_time_ms", "recordings/step_time_ms", "Time per iteration", "batch-latency", "iter_time"];
  expect(named.filter((tag) => !isStepTime(tag))).toEqual([]);
  expect(["loss", "step", "time", "timestep_count", "best_metric"].filter(isStepTime)).toEqual([]);
});

test("the largest spikes come first", () => {
  const spikes = { x: [1, null, 3], step: [1, 2, 3], wall_s: [], value: [20, 50, 90], median: [10, 10, 10] };
  const lines = [
    { run: "r", tag: "t", spikes },
    { run: "s", tag: "t", spikes: null },
  ] as unknown as ScalarLine[];
  expect(spikesOf(lines, 5).map(({ step }) => step)).toEqual([3, 1]);
  expect(spikesOf(lines, 1)).toHaveLength(1);
});

test("the recording with the step, or else the nearest one of the run", () => {
  const range = (run: string, first: number | null, last: number | null) =>
    ({ run, worker: "w", span: `s${first}`, first_step: first, last_step: last }) as RecordedRange;
  const all = [range("r", 10, 14), range("r", 100, 104), range("other", 60, 61), range("r", null, null)];
  expect(nearestRecording(all, "r", 12)?.distance).toBe(0);
  expect(nearestRecording(all, "r", 60)?.recording.first_step).toBe(100);
  expect(nearestRecording(all, "none", 60)).toBeNull();
  const run = { workers: [{ id: "w", spans: [{ id: "s10", steps: ["ProfilerStep#11", "ProfilerStep#12"] }] }] };
  expect(stepName(run as Run, all[0] as RecordedRange, 12)).toBe("ProfilerStep#12");
  expect(stepName(run as Run, all[0] as RecordedRange, 99)).toBeNull();
});

test("commands name the folder of a run", () => {
  expect(runPlace(["/logs"], "a/b")).toEqual({ logdir: "/logs", run: "a/b" });
  expect(runPlace(["/x/one", "/x/two/"], "two/b")).toEqual({ logdir: "/x/two/", run: "b" });
  expect(runPlace([], "b")).toEqual({ logdir: "DIR", run: "b" });
});
