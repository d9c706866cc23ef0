// The rows of a table: where their cells come from, and how they are shown.
import type { Cell } from "../../api/model";
import type { Column } from "./columns";
import type { RowLink } from "./row-links";

/** A row: returns the value of a column, undefined while the row is not loaded. */
export interface TableRow {
  (column: string): Cell | undefined;
  /** Position in the table, from 0. */
  readonly index: number;
}

export interface TableData {
  rows: number;
  cell: (row: number, column: string) => Cell | undefined;
  /** Changes with the set of rows, which resets the selection and the scroll position. */
  version: unknown;
}

/** How rows are shown, and what they offer. Everything is optional. */
export interface RowDisplay {
  /** Returns the display text of a text cell (such as the name of a category). Titles keep the original. */
  wording?: (column: string, value: string) => string;
  /** Text for unknown values. */
  unknown?: string;
  /** Returns why a cell is unknown, for its title. */
  explain?: (row: TableRow, column: string) => string;
  /** Returns a class name for a cell. */
  tone?: (row: TableRow, column: string) => string;
  /** Links to other pages at the end of the first cell. */
  links?: (row: TableRow) => RowLink[];
  selected?: (row: TableRow) => boolean;
  /** Whether a row has details below it. */
  expandable?: (row: TableRow) => boolean;
  /** Whether a click picks a row. */
  clickable?: boolean;
  /** A row to scroll to. */
  reveal?: number;
  /** The row that a link leads to, and its name in the link. */
  marked?: { index: number; key: string } | undefined;
}

/** What the content of a cell may depend on. */
export interface CellScope {
  row: TableRow;
  column: Column;
  /** The text that the cell shows by default. */
  text: string;
}

export function rowAt(data: TableData, index: number): TableRow {
  return Object.assign((column: string) => data.cell(index, column), { index });
}
