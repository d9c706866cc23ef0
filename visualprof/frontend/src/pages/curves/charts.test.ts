import { expect, test } from "vitest";
import type { CurveLine } from "../../api";
import { areaChart, pointsOf, prChart, rocChart } from "./charts";

const line = {
  run: "r",
  line: ".",
  steps: [1, 2],
  average_precision: [0.5, null],
  roc_area: [0.6, 0.7],
  precision: [0.5, 1, null],
  recall: [1, 0.5, 0],
  false_positive_rate: [1, 0, 0],
} as unknown as CurveLine;
const data = (option: object) => (option as { series: { name: string; data: unknown }[] }).series;

test("unknown rates are left out", () => expect(pointsOf([0, null, 2], [1, 1, null])).toEqual([[0, 1]]));

test("curves start at the highest threshold, and the ROC curve ends in both corners", () => {
  expect(data(prChart([line]))[0]?.data).toEqual([
    [0.5, 1],
    [1, 0.5],
  ]);
  expect(data(rocChart([line]))[0]?.data).toEqual([
    [0, 0],
    [0, 0],
    [0, 0.5],
    [1, 1],
    [1, 1],
  ]);
});

test("areas are lines over the steps", () => {
  expect(data(areaChart([line], { pr: "AP", roc: "ROC" })).map(({ name, data: points }) => [name, points])).toEqual([
    ["r AP", [[1, 0.5]]],
    [
      "r ROC",
      [
        [1, 0.6],
        [2, 0.7],
      ],
    ],
  ]);
});
