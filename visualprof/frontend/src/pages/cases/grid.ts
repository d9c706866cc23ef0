// The leaderboard as a grid: one row per case, one column per compiler and machine, one metric in the cells.
import type { Cell, Columns } from "../../api";

export interface GridCell {
  run: string;
  state: string;
  value: Cell;
  best: boolean;
}

export interface Grid {
  machines: { name: string; compilers: string[] }[];
  rows: { case: string; setup: [column: string, value: Cell][]; cells: (GridCell | null)[] }[];
}

/** Further columns of a setup. A case gets one row per value in which its results differ. */
const SETUP_COLUMNS = ["vendor", "framework", "precision", "batch_size"] as const;
const LOWER_IS_BETTER = new Set(["p50_ns", "p99_ns", "memory_used_bytes", "energy_j_per_sample"]);
/** Metrics for which neither larger nor smaller is better. */
const NO_DIRECTION = new Set(["accuracy_difference"]);

/** Build the grid of a metric. Of several results of a setup, the first is shown, which is the newest. */
export function buildGrid(table: Columns, figure: string): Grid {
  const at = (name: string, row: number): Cell => table[name]?.[row] ?? null;
  const rows = [...(table["run"] ?? []).keys()];
  const text = (name: string, row: number) => String(at(name, row) ?? "");
  const column = (row: number) => JSON.stringify([text("machine", row), text("compiler", row)]);
  const columns = [...new Set(rows.map(column))].sort();
  const cases = [...new Set(rows.map((row) => text("case", row)))].sort();
  const grid: Grid = { machines: [], rows: [] };
  for (const [machine, compiler] of columns.map((key) => JSON.parse(key) as [string, string])) {
    const last = grid.machines.at(-1);
    if (last?.name === machine) last.compilers.push(compiler);
    else grid.machines.push({ name: machine, compilers: [compiler] });
  }
  for (const name of cases) {
    const caseRows = rows.filter((row) => text("case", row) === name);
    const differing = SETUP_COLUMNS.filter((part) => new Set(caseRows.map((row) => at(part, row))).size > 1);
    const setups = new Map(caseRows.map((row) => [JSON.stringify(differing.map((part) => at(part, row))), row]));
    for (const [setup, first] of [...setups].sort()) {
      const cellRows = caseRows.filter((row) => JSON.stringify(differing.map((part) => at(part, row))) === setup);
      const cells = columns.map((key) => {
        const row = cellRows.find((candidate) => column(candidate) === key);
        return row === undefined
          ? null
          : { run: text("run", row), state: text("state", row), value: at(figure, row), best: false };
      });
      markBest(cells, figure);
      grid.rows.push({ case: name, setup: differing.map((part) => [part, at(part, first)]), cells });
    }
  }
  return grid;
}

function markBest(cells: readonly (GridCell | null)[], figure: string): void {
  const values = cells.flatMap((cell) => (cell && typeof cell.value === "number" ? [cell.value] : []));
  if (values.length < 2 || NO_DIRECTION.has(figure)) return;
  const best = LOWER_IS_BETTER.has(figure) ? Math.min(...values) : Math.max(...values);
  for (const cell of cells) if (cell) cell.best = cell.value === best;
}
