import { expect, it } from "vitest";
import { createColumns } from "./columns";

const kinds = { stage: "word", input_shapes: "text", busy: "ns", worker: "id", name: "word", kernel: "name" } as const;

it("the layout of a column depends on its content, not on its name", () => {
  const columns = createColumns([...Object.keys(kinds), "unsaid_ns"], kinds);
  expect(columns.filter((column) => column.numeric).map((column) => column.name)).toEqual(["busy"]);
  const width = Object.fromEntries(columns.map((column) => [column.name, column.widthPx]));
  expect(width["kernel"]).toBeGreaterThan(width["input_shapes"] ?? 0);
  expect(width["input_shapes"]).toBeGreaterThan(width["name"] ?? 0);
  expect(columns.at(-1)?.kind).toBe("text");
});

it("a heading of several words takes two lines", () => {
  const width = (name: string) => createColumns([name], { [name]: "count" })[0]?.widthPx ?? 0;
  expect(width("predicted_step")).toBeLessThan(width("predictedstep"));
  expect(width("predicted_step")).toBeGreaterThanOrEqual(width("predicted"));
});

it("short texts get the width that they need, within limits", () => {
  const width = (text: string, name = "address") =>
    createColumns([name], { [name]: "word" }, "", () => ["x", text])[0]?.widthPx ?? 0;
  expect(width("0x7fcbc8000000")).toBeGreaterThan(130);
  expect(width("一个很长的词")).toBeGreaterThan(width("a word"));
  expect(width("x".repeat(500))).toBeLessThan(200);
  expect(width("x")).toBeLessThan(100);
});
