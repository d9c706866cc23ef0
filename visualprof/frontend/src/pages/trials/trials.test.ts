import { expect, test } from "vitest";
import type { TrialsList } from "../../api";
import { cellOf, filterOf, listAxes, listTrials, parseFilters, passes, positionOn, rangeOf, ranked } from "./trials";

const row = (line: string, settings: (string | number | boolean | null)[], metrics: (number | null)[]) => ({
  run: "r",
  line,
  status: "success",
  settings,
  metrics,
});
const list: TrialsList = {
  complete: true,
  parameters: ["lr", "opt", "amp"],
  metrics: ["loss"],
  trials: [
    row("a", [0.001, "adam", true], [0.5]),
    row("b", [0.01, "sgd", false], [0.25]),
    row("c", [1, "adam", null], [null]),
  ],
  effects: [],
  warnings: [],
};
const trials = listTrials(list);
const axes = listAxes(list, trials);
const axis = (id: string) => axes.find((candidate) => candidate.id === id) as (typeof axes)[number];
const names = (filters: object) => trials.filter((trial) => passes(trial, filters as never)).map(({ row }) => row.line);

test("numbers of several magnitudes have a logarithmic axis, texts have choices", () => {
  expect(axes.map(({ id, log, choices }) => [id, log, choices])).toEqual([
    ["p.lr", true, null],
    ["p.opt", false, ["adam", "sgd"]],
    ["p.amp", false, ["false", "true"]],
    ["m.loss", false, null],
  ]);
  expect(positionOn(axis("p.lr"), 0.01)).toBeCloseTo(1 / 3);
  expect(positionOn(axis("p.opt"), "sgd")).toBe(0.75);
  expect(positionOn(axis("m.loss"), null)).toBeNull();
});

test("a range of positions is a filter, and covers the filter's positions", () => {
  expect(filterOf(axis("m.loss"), -0.1, 0.5)).toEqual([0.25, 0.375]);
  expect(filterOf(axis("p.opt"), 0.6, 1)).toEqual(["sgd"]);
  expect(filterOf(axis("p.opt"), 0.3, 0.4)).toBeNull();
  expect(rangeOf(axis("p.opt"), ["sgd"])).toEqual([0.5, 1]);
  expect(rangeOf(axis("m.loss"), [0.25, 0.375])).toEqual([0, 0.5]);
});

test("trials pass filters with known values in them", () => {
  expect(names({ "p.lr": [0.005, 2] })).toEqual(["b", "c"]);
  expect(names({ "p.opt": ["adam"], "m.loss": [0, 1] })).toEqual(["a"]);
  expect(names({ "p.amp": ["true"] })).toEqual(["a"]);
});

test("filters in the address are checked", () => {
  expect(parseFilters('{"p.lr":[0.1,1],"p.opt":["adam"],"x":5,"y":[]}')).toEqual({
    "p.lr": [0.1, 1],
    "p.opt": ["adam"],
  });
  expect(parseFilters("{")).toEqual({});
  expect(parseFilters("[1]")).toEqual({});
});

test("the best trial is first, trials without the metric are last", () => {
  expect(ranked(trials, "m.loss", "min").map(({ row }) => row.line)).toEqual(["b", "a", "c"]);
  expect(ranked(trials, "m.loss", "max").map(({ row }) => row.line)).toEqual(["a", "b", "c"]);
  expect(["trial", "p.amp", "m.loss"].map((column) => cellOf(trials[2] as never, column))).toEqual([
    "r / c",
    null,
    null,
  ]);
});
