import { describe, expect, it } from "vitest";
import { sortRows } from "../../lib/sort-rows";
import type { Column } from "./columns";
import { nextSort, parseSort, sortQuery } from "./sort-keys";

const column = (name: string, numeric: boolean): Column => ({
  name,
  label: name,
  hint: "",
  kind: numeric ? "count" : "text",
  numeric,
  widthPx: 80,
  maxWidth: "80px",
});
const [calls, name] = [column("calls", true), column("name", false)];

describe("the order in the address", () => {
  it("has one direction for all columns, or one for each", () => {
    expect(parseSort("calls,name", "asc")).toEqual([
      { column: "calls", descending: false },
      { column: "name", descending: false },
    ]);
    expect(parseSort("calls,name", "desc,asc").map((key) => key.descending)).toEqual([true, false]);
    expect(parseSort("", "desc")).toEqual([]);
  });

  it("is short for the default direction", () => {
    expect(sortQuery([{ column: "calls", descending: true }])).toEqual({ sort: "calls", order: null });
    expect(sortQuery([{ column: "calls", descending: false }])).toEqual({ sort: "calls", order: "asc" });
    expect(sortQuery(parseSort("calls,name", "desc,asc"))).toEqual({ sort: "calls,name", order: "desc,asc" });
    expect(sortQuery([])).toEqual({ sort: null, order: null });
  });
});

describe("a click on a heading", () => {
  it("sorts numbers by the largest and texts by the first", () => {
    expect(nextSort([], calls, false)).toEqual([{ column: "calls", descending: true }]);
    expect(nextSort([], name, false)).toEqual([{ column: "name", descending: false }]);
  });

  it("reverses the order of the same column and replaces others", () => {
    const byCalls = nextSort([], calls, false);
    expect(nextSort(byCalls, calls, false)).toEqual([{ column: "calls", descending: false }]);
    expect(nextSort(nextSort(byCalls, name, true), name, false)).toEqual([{ column: "name", descending: false }]);
  });

  it("with Shift adds a column, reverses it and removes it", () => {
    const first = nextSort([], name, false);
    const added = nextSort(first, calls, true);
    expect(added).toEqual([...first, { column: "calls", descending: true }]);
    const reversed = nextSort(added, calls, true);
    expect(reversed).toEqual([...first, { column: "calls", descending: false }]);
    expect(nextSort(reversed, calls, true)).toEqual(first);
  });
});

it("rows that are equal in one column are sorted by the next, unknown values last", () => {
  const table: Record<string, (string | number | null)[]> = { kind: ["b", "a", "b", null], calls: [1, 5, 2, 9] };
  const rows = sortRows([0, 1, 2, 3], parseSort("kind,calls", "asc,desc"), (row, key) => table[key]?.[row]);
  expect(rows).toEqual([1, 2, 0, 3]);
});
