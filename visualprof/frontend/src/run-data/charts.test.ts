import { expect, test } from "vitest";
import { groupCharts, parseUserCharts, tagsMatching, userChartsText } from "./charts";

const TAGS = ["acc", "loss/train", "loss/valid", "steps/step_time_ms"];

test("the user's charts are in the address, and damaged ones are left out", () => {
  const charts = [{ title: "both", group: "", left: ["loss/train"], right: ["steps/step_time_ms"] }];
  expect(parseUserCharts(userChartsText(charts))).toEqual(charts);
  expect(parseUserCharts('[1, ["t"], ["t", "g", ["a"]]]')).toEqual([
    { title: "t", group: "g", left: ["a"], right: [] },
  ]);
  expect(parseUserCharts("{")).toEqual([]);
  expect(userChartsText([])).toBe("");
});

test("charts are grouped: pins, the user's, layouts, tags", () => {
  const layout = { category: "Losses", title: "all", patterns: ["loss/.*"], margins: [], closed: true };
  const margin = { value: "acc", lower: "low", upper: "high" };
  const empty = { ...layout, patterns: ["nothing"] };
  const groups = groupCharts({
    tags: TAGS,
    pins: ["acc"],
    own: [{ title: "t", group: "", left: ["acc"], right: ["loss/train"] }],
    layouts: [layout, empty, { ...layout, category: "", patterns: [], margins: [margin], closed: false }],
    ownGroup: "Custom",
  });
  expect(groups.map(({ name, charts }) => [name, charts.map(({ left }) => left)])).toEqual([
    ["", [["acc"]]],
    ["Custom", [["acc"], ["acc", "low", "high"]]],
    ["Losses", [["loss/train", "loss/valid"]]],
    ["acc", [["acc"]]],
    ["loss", [["loss/train"], ["loss/valid"]]],
    ["steps", [["steps/step_time_ms"]]],
  ]);
  expect(groups[2]?.closed).toBe(true);
});

test("a pattern matches from the start, and a costly one is plain text", () => {
  expect(tagsMatching("loss", TAGS)).toEqual(["loss/train", "loss/valid"]);
  expect(tagsMatching("valid", TAGS)).toEqual([]);
  expect(tagsMatching("(", TAGS)).toEqual([]);
  const hostile = "a".repeat(40);
  expect(tagsMatching("(a+)+b", [hostile])).toEqual([]);
  expect(tagsMatching("a?a?a?a?aaaa", [hostile])).toEqual([]);
  expect(tagsMatching("(a+)+b", ["(a+)+b"])).toEqual(["(a+)+b"]);
  let clock = 0;
  expect(tagsMatching("l.*", ["la", "lb", "lc"], () => (clock += 140))).toEqual(["la", "lb"]);
});
