import { expect, test } from "vitest";
import type { SeriesLine } from "../../api";
import { placesOf, stepIndex } from "./settings";

const line = (run: string, step: number[]) =>
  ({ run, line: ".", tag: "t", kind: "image", step }) as unknown as SeriesLine;

test("the last step at or before the slider counts", () => {
  expect([null, 4, 5, 99, -1].map((step) => stepIndex([0, 5, 9], step))).toEqual([2, 0, 1, 2, 0]);
});

test("a value is compared with its previous step, or with the first line", () => {
  const lines = [line("a", [0, 5]), line("b", [3, 6])];
  expect(placesOf(lines, 1, { step: null, comparison: "previous" })).toMatchObject({
    shown: { run: "b", step: 6 },
    base: { run: "b", step: 3 },
  });
  expect(placesOf(lines, 1, { step: null, comparison: "first" })?.base).toMatchObject({ run: "a", step: 5 });
  expect(placesOf(lines, 0, { step: null, comparison: "first" })?.base).toBeNull();
  expect(placesOf(lines, 0, { step: 0, comparison: "previous" })?.base).toBeNull();
  expect(placesOf([line("a", [])], 0, { step: null, comparison: "none" })).toBeNull();
});
