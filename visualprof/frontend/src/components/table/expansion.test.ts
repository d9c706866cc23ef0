import { expect, it } from "vitest";
import type { Cell } from "../../api/model";
import type { Column } from "./columns";
import { rowKey } from "./expansion";

const columns = [
  { name: "name", kind: "name" },
  { name: "calls", kind: "count" },
  { name: "share", kind: "ratio" },
] as Column[];
const row = (cells: Record<string, Cell>, index = 0) => Object.assign((name: string) => cells[name], { index });

it("a row is recognized at another position, in another order of columns, and with another share", () => {
  const key = rowKey(row({ name: "mm", calls: 2, share: 0.5 }), columns);
  expect(key).toMatch(/^[0-9a-z]{7}$/);
  expect(rowKey(row({ name: "mm", calls: 2, share: 0.9 }, 7), columns.toReversed())).toBe(key);
  expect(rowKey(row({ name: "mm", calls: 3, share: 0.5 }), columns)).not.toBe(key);
});

it("a row that is not loaded has no key", () => expect(rowKey(row({ name: "mm" }), columns)).toBeNull());
