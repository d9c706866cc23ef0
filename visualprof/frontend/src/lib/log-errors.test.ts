import { describe, expect, it } from "vitest";
import { errorLines } from "./log-errors";

const TRACEBACK = [
  "Traceback (most recent call last):",
  '  File "run.py", line 3, in <module>',
  "ValueError: bad shape",
];
const noise = (n: number) => Array.from({ length: n }, (_, i) => `step ${i}`);

describe("the useful lines of a log", () => {
  it("are the last traceback, without the lines of a clean-up", () => {
    const log = [...noise(30), ...TRACEBACK, ...noise(20), "[agent] removed 3 files"];
    expect(errorLines(log, 12)).toEqual(TRACEBACK);
  });

  it("are the end of a long traceback, which names the error", () => {
    const frames = noise(40).map((line) => `  ${line}`);
    const lines = errorLines([TRACEBACK[0] ?? "", ...frames, "RuntimeError: out of memory", "done"], 3);
    expect(lines).toEqual(["  step 38", "  step 39", "RuntimeError: out of memory"]);
  });

  it("end with the last error if there is no traceback", () => {
    expect(errorLines([...noise(3), "error: no such device", ...noise(9)], 2)).toEqual([
      "step 2",
      "error: no such device",
    ]);
  });

  it("are the last lines if no line names an error", () => {
    expect(errorLines(noise(30), 2)).toEqual(["step 28", "step 29"]);
    expect(errorLines([], 2)).toEqual([]);
  });
});
