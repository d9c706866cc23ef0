// The visible part of the heat map, in rows and columns. It may start and end within a cell.

export interface Viewport {
  row: number;
  rows: number;
  column: number;
  columns: number;
}

/** Size of the whole map. */
export interface Size {
  rows: number;
  columns: number;
}

// Cells need not fill the screen.
const MIN_ROWS = 4;
const MIN_COLUMNS = 2;

export function fullViewport({ rows, columns }: Size): Viewport {
  return { row: 0, rows, column: 0, columns };
}

function clampRange(first: number, count: number, min: number, total: number): [first: number, count: number] {
  const room = Math.min(total, Math.max(Math.min(min, total), count));
  return [Math.max(0, Math.min(total - room, first)), room];
}

/** Return the nearest viewport within the map. */
export function clampViewport(sight: Viewport, size: Size): Viewport {
  const [row, rows] = clampRange(sight.row, sight.rows, MIN_ROWS, size.rows);
  const [column, columns] = clampRange(sight.column, sight.columns, MIN_COLUMNS, size.columns);
  return { row, rows, column, columns };
}

/** Zoom in for a factor below 1. The given point keeps its position on the screen. */
export function zoomViewport(
  sight: Viewport,
  at: { row: number; column: number },
  factor: number,
  size: Size,
): Viewport {
  const next = clampViewport({ ...sight, rows: sight.rows * factor, columns: sight.columns * factor }, size);
  const [byRow, byColumn] = [next.rows / sight.rows, next.columns / sight.columns];
  return clampViewport(
    {
      ...next,
      row: at.row - (at.row - sight.row) * byRow,
      column: at.column - (at.column - sight.column) * byColumn,
    },
    size,
  );
}

export function moveViewport(sight: Viewport, rows: number, columns: number, size: Size): Viewport {
  return clampViewport({ ...sight, row: sight.row + rows, column: sight.column + columns }, size);
}

export function isFullViewport(sight: Viewport, size: Size): boolean {
  return sight.rows >= size.rows && sight.columns >= size.columns;
}

/** Return the rows and columns that are at least partly visible. */
export function roundOutward(sight: Viewport): Viewport {
  const [row, column] = [Math.floor(sight.row), Math.floor(sight.column)];
  return {
    row,
    rows: Math.ceil(sight.row + sight.rows) - row,
    column,
    columns: Math.ceil(sight.column + sight.columns) - column,
  };
}

/** Format a viewport for the address as `first~rows~first~columns`; "" for the whole map. */
export function viewportText(sight: Viewport, size: Size): string {
  const { row, rows, column, columns } = roundOutward(sight);
  return isFullViewport(sight, size) ? "" : [row, rows, column, columns].join("~");
}

export function parseViewport(text: string, size: Size): Viewport {
  const [row, rows, column, columns] = text.split("~").map(Number);
  const isValid = [row, rows, column, columns].every(
    (part) => part !== undefined && Number.isSafeInteger(part) && part >= 0,
  );
  return isValid && rows && columns
    ? clampViewport({ row: row ?? 0, rows, column: column ?? 0, columns }, size)
    : fullViewport(size);
}

/** Return the positions of ticks with a minimum distance: every 1, 2, 4, 8, ... or every 1, 2, 5, 10, ... of them. */
export function tickPositions(
  first: number,
  count: number,
  px: number,
  apartPx: number,
  ladder: "halves" | "tens",
): number[] {
  const minPx = (apartPx * count) / Math.max(px, 1);
  let every = 1;
  for (let turn = 0; every < minPx; turn += 1) every *= ladder === "halves" ? 2 : turn % 3 === 1 ? 2.5 : 2;
  const ticks: number[] = [];
  for (let at = Math.ceil(first / every) * every; at < first + count; at += every) ticks.push(at);
  return ticks;
}

/** Return the last index whose position is at or before `at`, or -1. `positions`: ascending. */
export function findBin(positions: readonly number[], at: number): number {
  let [low, high] = [0, positions.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((positions[middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
