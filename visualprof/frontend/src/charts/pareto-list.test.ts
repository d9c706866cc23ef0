import { expect, it } from "vitest";
import { paretoRows } from "./pareto-list";

const pie = (data: { name: string; value: number }[]) => ({ series: [{ type: "pie", data }] });

it("a row has its share and the share of all rows up to it", () => {
  const rows = paretoRows(
    pie([
      { name: "a", value: 50 },
      { name: "b", value: 30 },
      { name: "@t:chart.rest", value: 20 },
    ]),
  );
  expect(rows.map(({ name, share, cumulative }) => [name, share, cumulative])).toEqual([
    ["a", 0.5, 0.5],
    ["b", 0.3, 0.8],
    ["", 0.2, 1],
  ]);
});

it("bars compare all rows with the longest one", () => {
  const rows = paretoRows(
    pie([
      { name: "a", value: 10 },
      { name: "b", value: 5 },
      { name: "@t:chart.rest", value: 85 },
    ]),
  );
  expect(rows.map((row) => row.length)).toEqual([10 / 85, 5 / 85, 1]);
});

it("a chart without values has no rows", () => {
  expect(paretoRows(pie([]))).toEqual([]);
});
