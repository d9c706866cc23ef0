import { expect, test } from "vitest";
import type { TagsAnswer } from "../api";
import { groupTags, lineColors, lineName, linesOf, matchingTags, parsePattern } from "./lines";
import { formatPosition, formatValue } from "./positions";

test("tags are grouped by their first part, pinned tags come first", () => {
  const groups = groupTags(["loss", "train/acc", "train/loss", "valid/acc"], ["train/loss", "gone"]);
  expect(groups.map(({ name, tags }) => [name, tags])).toEqual([
    ["", ["train/loss"]],
    ["loss", ["loss"]],
    ["train", ["train/acc", "train/loss"]],
    ["valid", ["valid/acc"]],
  ]);
});

test("an invalid expression is no pattern", () => {
  expect(parsePattern("(")).toBeNull();
  expect(parsePattern("a|b")?.test("b")).toBe(true);
});

test("lines and tags of an answer are distinct", () => {
  const columns = { run: ["r10", "r2", "r2"], line: [".", "train", "train"], tag: ["b", "a", "b"] };
  const answer = { columns } as unknown as TagsAnswer;
  expect(linesOf(answer)).toEqual(["r2 / train", "r10"]);
  expect(matchingTags(answer, /./)).toEqual(["a", "b"]);
  expect(lineName("r", ".")).toBe("r");
});

test("lines keep their colors, and a pattern joins colors", () => {
  const palette = ["red", "green", "blue", "gray"];
  const few = lineColors(["a"], null, palette);
  expect(lineColors(["a", "z"], null, palette).get("a")).toBe(few.get("a"));
  const four = lineColors(["a", "b", "c", "d"], null, palette);
  expect(new Set(four.values()).size).toBe(4);
  const joined = lineColors(["lr=1/a", "lr=1/b", "lr=2/a"], /lr=(\d)/, palette);
  expect(joined.get("lr=1/a")).toBe(joined.get("lr=1/b"));
  expect(joined.get("lr=1/a")).not.toBe(joined.get("lr=2/a"));
});

test("positions and values are short", () => {
  expect(formatPosition("step", 12)).toBe("12");
  expect(formatPosition("step", 250_000)).toBe("250k");
  expect(formatPosition("relative", 7200)).toBe("2 h");
  expect(formatPosition("relative", 1.5)).toBe("1.5 s");
  expect(formatValue(0.000012345)).toBe("1.23e-5");
  expect(formatValue(12_345_678)).toBe("1.23e7");
  expect(formatValue(0.123456)).toBe("0.1235");
});
