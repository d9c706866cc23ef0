import { expect, test } from "vitest";
import { diffLines } from "./text-diff";

const marks = (base: string, changed: string) =>
  diffLines(base, changed)
    .map(({ kind, text }) => `${{ same: " ", added: "+", removed: "-" }[kind]}${text}`)
    .join("|");

test("common lines are kept, others are removed and added", () => {
  expect(marks("a\nb\nc\nd", "a\nx\nc\ny\nd")).toBe(" a|-b|+x| c|+y| d");
  expect(marks("same", "same")).toBe(" same");
  expect(marks("a\nb", "b\na")).toBe("-a| b|+a");
});

test("texts without a common line are replaced", () => expect(marks("a\nb", "c")).toBe("-a|-b|+c"));
