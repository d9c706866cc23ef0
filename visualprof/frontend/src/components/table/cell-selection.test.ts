import { describe, expect, it } from "vitest";
import { rangeText, useCellSelection } from "./cell-selection";
import type { Column } from "./columns";

const columns = ["name", "calls"].map((name) => ({ name }) as Column);
const cells: Record<string, (string | number | null)[]> = { name: ["mm", "a\tb", "x"], calls: [2, null, 0.5] };
const data = { rows: 4, cell: (row: number, name: string) => cells[name]?.[row], version: 0 };
const selection = () => useCellSelection(() => ({ rows: 4, columns: 2 }));

describe("the selected cells", () => {
  it("are one cell, or the rectangle up to another cell", () => {
    const cellsOf = selection();
    cellsOf.select({ row: 2, column: 1 });
    expect(cellsOf.isRange.value).toBe(false);
    cellsOf.select({ row: 0, column: 0 }, true);
    expect(cellsOf.range.value).toEqual({ top: 0, bottom: 2, left: 0, right: 1 });
    expect(cellsOf.contains(1, 1)).toBe(true);
    expect(cellsOf.contains(3, 1)).toBe(false);
  });

  it("move with keys and stay in the table", () => {
    const cellsOf = selection();
    cellsOf.moveBy(1, 0);
    expect(cellsOf.current.value).toEqual({ row: 0, column: 0 });
    cellsOf.moveBy(-1, 0);
    cellsOf.moveBy(0, Infinity);
    expect(cellsOf.current.value).toEqual({ row: 0, column: 1 });
    cellsOf.moveBy(9, 0, true);
    expect(cellsOf.range.value).toEqual({ top: 0, bottom: 3, left: 1, right: 1 });
  });

  it("can be a whole row", () => {
    const cellsOf = selection();
    cellsOf.moveBy(1, 0);
    cellsOf.selectRow();
    expect(cellsOf.range.value).toEqual({ top: 0, bottom: 0, left: 0, right: 1 });
  });
});

describe("copied cells", () => {
  it("are exact values separated by tabs, and an unknown one is empty", () => {
    expect(rangeText({ top: 0, bottom: 2, left: 0, right: 1 }, columns, data)).toBe("mm\t2\na b\t\nx\t0.5");
    expect(rangeText({ top: 2, bottom: 2, left: 1, right: 1 }, columns, data)).toBe("0.5");
  });

  it("are not copied while a row is missing", () =>
    expect(rangeText({ top: 2, bottom: 3, left: 0, right: 0 }, columns, data)).toBeNull());
});
