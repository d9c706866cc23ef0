// The charts of a tag: precision over recall, true over false positives, and the areas over the steps.
import type { CurveLine } from "../../api";
import type { JsonObject } from "../../api/model";
import { lineName } from "../../run-data/lines";

type Column = readonly (number | null)[];

/** Return the points with two known coordinates. */
export function pointsOf(x: Column, y: Column): [number, number][] {
  return x.flatMap((value, index) => {
    const other = y[index];
    return value !== null && other !== null && other !== undefined ? [[value, other]] : [];
  });
}

function lineChart(names: readonly [x: string, y: string], lines: readonly [string, [number, number][]][]): JsonObject {
  const axis = (name: string, format: string) => ({ type: "value", name, axisLabel: { formatter: `@f:${format}` } });
  return {
    xAxis: axis(names[0], names[0] === "@t:curves.step" ? "count" : "ratio"),
    yAxis: axis(names[1], "ratio"),
    series: lines.map(([name, data]) => ({ type: "line", name, data, showSymbol: data.length < 2 })),
  };
}

const columns = (line: CurveLine) => ({
  precision: line.precision as Column,
  recall: line.recall as Column,
  fallOut: line.false_positive_rate as Column,
});
const nameOf = ({ run, line }: CurveLine) => lineName(run, line);

export function prChart(lines: readonly CurveLine[]): JsonObject {
  const points = (line: CurveLine) => pointsOf(columns(line).recall, columns(line).precision).reverse();
  return lineChart(
    ["@t:curves.recall", "@t:curves.precision"],
    lines.map((line) => [nameOf(line), points(line)]),
  );
}

/** Return the ROC curves, from (0, 0) to (1, 1). */
export function rocChart(lines: readonly CurveLine[]): JsonObject {
  const points = (line: CurveLine): [number, number][] => [
    [0, 0],
    ...pointsOf(columns(line).fallOut, columns(line).recall).reverse(),
    [1, 1],
  ];
  return lineChart(
    ["@t:curves.fall_out", "@t:curves.recall"],
    lines.map((line) => [nameOf(line), points(line)]),
  );
}

/** Return both areas over the steps. */
export function areaChart(lines: readonly CurveLine[], names: { pr: string; roc: string }): JsonObject {
  const steps = (line: CurveLine) => line.steps as Column;
  return lineChart(
    ["@t:curves.step", "@t:curves.area"],
    lines.flatMap((line) => [
      [`${nameOf(line)} ${names.pr}`, pointsOf(steps(line), line.average_precision)],
      [`${nameOf(line)} ${names.roc}`, pointsOf(steps(line), line.roc_area)],
    ]),
  );
}
