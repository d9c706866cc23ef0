// The selected cells of a table: one cell, or a rectangle between two cells.
import { computed, shallowRef } from "vue";
import type { Column } from "./columns";
import type { TableData } from "./rows";

export interface CellPosition {
  row: number;
  column: number;
}

export interface CellRange {
  top: number;
  bottom: number;
  left: number;
  right: number;
}

export type CellSelection = ReturnType<typeof useCellSelection>;

/** `size()`: the number of rows and columns. */
export function useCellSelection(size: () => { rows: number; columns: number }) {
  const anchor = shallowRef<CellPosition | null>(null);
  /** The cell that has the keyboard. */
  const current = shallowRef<CellPosition | null>(null);
  const range = computed<CellRange | null>(() => {
    const [a, b] = [anchor.value, current.value];
    return (
      a &&
      b && {
        top: Math.min(a.row, b.row),
        bottom: Math.max(a.row, b.row),
        left: Math.min(a.column, b.column),
        right: Math.max(a.column, b.column),
      }
    );
  });
  const isRange = computed(() => range.value !== null && cellCount(range.value) > 1);

  /** Select a cell, or extend the selection up to it. */
  function select(position: CellPosition, extend = false): void {
    const { rows, columns } = size();
    const inside = {
      row: Math.max(0, Math.min(rows - 1, position.row)),
      column: Math.max(0, Math.min(columns - 1, position.column)),
    };
    if (!extend || !anchor.value) anchor.value = inside;
    current.value = inside;
  }

  /** Move by a number of rows and columns. The first move selects the first row. */
  function moveBy(rows: number, columns: number, extend = false): void {
    const from = current.value ?? { row: rows > 0 ? -1 : 0, column: 0 };
    select({ row: from.row + rows, column: from.column + columns }, extend);
  }

  function selectRow(): void {
    if (!current.value) return;
    anchor.value = { row: current.value.row, column: 0 };
    current.value = { row: current.value.row, column: size().columns - 1 };
  }

  function clear(): void {
    anchor.value = current.value = null;
  }

  function contains(row: number, column: number): boolean {
    const cells = range.value;
    return cells !== null && row >= cells.top && row <= cells.bottom && column >= cells.left && column <= cells.right;
  }

  return { current, range, isRange, select, moveBy, selectRow, clear, contains };
}

export function cellCount(range: CellRange): number {
  return (range.bottom - range.top + 1) * (range.right - range.left + 1);
}

/** Return the exact values of cells for a spreadsheet, separated by tabs; null if some are not loaded. */
export function rangeText(range: CellRange, columns: readonly Column[], data: TableData): string | null {
  const names = columns.slice(range.left, range.right + 1).map((column) => column.name);
  const lines: string[] = [];
  for (let row = range.top; row <= range.bottom; row += 1) {
    const cells = names.map((name) => data.cell(row, name));
    if (cells.includes(undefined)) return null;
    lines.push(cells.map((value) => String(value ?? "").replaceAll(/[\t\r\n]+/g, " ")).join("\t"));
  }
  return lines.join("\n");
}
