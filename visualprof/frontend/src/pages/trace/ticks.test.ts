import { expect, it } from "vitest";
import { formatTime, tickLabel, tickStep, ticks } from "./ticks";

it("steps in 1, 2, 5", () => {
  expect([0.3, 1, 1.2, 30, 51, 700_000].map((minNs) => tickStep(minNs))).toEqual([1, 1, 2, 50, 100, 1_000_000]);
  expect(ticks(-10, 25, 10)).toEqual([-10, 0, 10, 20]);
});

it("labels ticks with just enough digits to distinguish them", () => {
  expect(tickLabel(0, 10)).toBe("0");
  expect(tickLabel(12_350_000, 10_000)).toBe("12.35\u00a0ms");
  expect(tickLabel(-20_000_000, 10_000_000)).toBe("−20\u00a0ms");
  expect(tickLabel(1_500, 500)).toBe("1.5\u00a0µs");
  expect(tickLabel(2_000_000_000, 1_000_000_000)).toBe("2\u00a0s");
});

it("formats a time to the nanosecond if possible", () => {
  expect(formatTime(16_728_251)).toBe("16.728251\u00a0ms");
  expect(formatTime(950)).toBe("950\u00a0ns");
  expect(formatTime(-1_500)).toBe("−1.500\u00a0µs");
});
