import { describe, expect, it } from "vitest";
import type { LiveRecording } from "../api/model";
import { groupByState, isShownRecording } from "./live-groups";

describe("groupByState", () => {
  it("lists running states before errors, and omits items without a state", () => {
    const states = ["ended", "done", "", "armed", "done"];
    const result = groupByState([...states.keys()], (index) => states[index] || null);
    expect(result).toEqual([
      { state: "armed", members: [3] },
      { state: "done", members: [1, 4] },
      { state: "ended", members: [0] },
    ]);
  });
});

describe("isShownRecording", () => {
  const nowMs = 1e12;
  const recording = (minutes: number, isOver: boolean): LiveRecording => ({
    id: "a",
    by: "page",
    steps: 5,
    asked_ns: (nowMs - minutes * 60e3) * 1e6,
    over: isOver,
    workers: [],
  });
  it.each([
    [9, true, false, true],
    [11, true, true, false],
    [11, false, true, true],
    [11, false, false, false], // no process is left that could end it
  ])("started %i minutes ago, finished %s, process present %s", (minutes, isOver, live, isShown) =>
    expect(isShownRecording(recording(minutes, isOver), live, nowMs)).toBe(isShown),
  );
});
