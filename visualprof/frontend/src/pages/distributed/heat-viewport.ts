// What of the heat map is in sight: places of its rows and columns, which may begin and end within one.

export interface Viewport {
  row: number;
  rows: number;
  column: number;
  columns: number;
}

/** Of the whole map. */
export interface Size {
  rows: number;
  columns: number;
}

// Nobody needs a cell to fill the screen.
const MIN_ROWS = 4;
const MIN_COLUMNS = 2;

export function fullViewport({ rows, columns }: Size): Viewport {
  return { row: 0, rows, column: 0, columns };
}

function clampRange(first: number, count: number, min: number, total: number): [first: number, count: number] {
  const room = Math.min(total, Math.max(Math.min(min, total), count));
  return [Math.max(0, Math.min(total - room, first)), room];
}

/** The nearest sight that the map has. */
export function clampViewport(sight: Viewport, size: Size): Viewport {
  const [row, rows] = clampRange(sight.row, sight.rows, MIN_ROWS, size.rows);
  const [column, columns] = clampRange(sight.column, sight.columns, MIN_COLUMNS, size.columns);
  return { row, rows, column, columns };
}

/** Nearer for a factor below 1, about a point whose place in the picture stays. */
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

/** The places that are at least partly in sight. */
export function roundOutward(sight: Viewport): Viewport {
  const [row, column] = [Math.floor(sight.row), Math.floor(sight.column)];
  return {
    row,
    rows: Math.ceil(sight.row + sight.rows) - row,
    column,
    columns: Math.ceil(sight.column + sight.columns) - column,
  };
}

/** As the address has it: `first~rows~first~columns`; nothing where all is in sight. */
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

/** Places of ticks that are at least so far apart: every 1, 2, 4, 8, ... of them, or every 1, 2, 5, 10, ... */
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

/** The last place at or before another, -1 for none. places: ascending. */
export function findBin(positions: readonly number[], at: number): number {
  let [low, high] = [0, positions.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((positions[middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
