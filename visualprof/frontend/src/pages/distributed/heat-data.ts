// Data of the heat map: an overview at screen resolution and, when zoomed in, the visible part cell by cell.
import { refDebounced } from "@vueuse/core";
import { computed, type Ref } from "vue";
import type { HeatmapAnswer, Query } from "../../api";
import { fileStamp, useResource, useView, viewAddress } from "../../state";
import { findBin, isFullViewport, roundOutward, clampViewport, type Viewport } from "./heat-viewport";

const MAX_CELLS = 512;
const PAUSE_MS = 120;
// Request this much more than the visible part, so that a small move needs no new answer.
const MARGIN = 0.25;

/** Its position in the map, and the number of rows and columns that it merges. */
export interface HeatCell extends Viewport {
  value: number | null;
  median: number | null;
  mean: number | null;
  /** Its first rank and step. */
  rank: number;
  worker: string;
  host: string;
  group: string;
  step: string;
  lastStep: string;
}

const numbers = (list: readonly unknown[] | undefined) => (list ?? []).map(Number);
const numberOrNull = (value: unknown) => (typeof value === "number" ? value : null);

/** Return the cell of an answer at a position of the map, or null if it is outside. */
export function cellAt(answer: HeatmapAnswer, row: number, column: number): HeatCell | null {
  const [rows, columns] = [answer.ranks_shown, answer.steps_shown];
  const [positions, atSteps] = [numbers(rows.place), numbers(columns.place)];
  const [i, j] = [findBin(positions, row), findBin(atSteps, column)];
  const [ranks, steps] = [Number(rows.ranks[i] ?? 0), Number(columns.steps[j] ?? 0)];
  if (i < 0 || j < 0 || row >= (positions[i] ?? 0) + ranks || column >= (atSteps[j] ?? 0) + steps) return null;
  return {
    value: answer.cells_ns[i * atSteps.length + j] ?? null,
    median: numberOrNull(columns.median_ns[j]),
    mean: numberOrNull(rows.mean_ns[i]),
    rank: Number(rows.rank[i]),
    worker: String(rows.worker[i] ?? ""),
    host: String(rows.host[i] ?? ""),
    group: String(rows.group[i] ?? ""),
    step: String(columns.step[j] ?? ""),
    lastStep: String(columns.last[j] ?? ""),
    row: positions[i] ?? 0,
    rows: ranks,
    column: atSteps[j] ?? 0,
    columns: steps,
  };
}

/** Return the rank of a row, or the step of a column, from the last answer that has it. */
export function labelAt(answers: readonly HeatmapAnswer[], index: number, axis: "row" | "column"): string {
  for (const answer of [...answers].reverse()) {
    const positions = numbers(axis === "row" ? answer.ranks_shown.place : answer.steps_shown.place);
    const names = axis === "row" ? answer.ranks_shown.rank : answer.steps_shown.step;
    const at = findBin(positions, index);
    if (at >= 0 && at < names.length) return String(names[at]);
  }
  return "";
}

/** Return the area of the map that an answer covers. */
export function mapSize(answer: HeatmapAnswer): Viewport {
  const [rows, columns] = [answer.ranks_shown, answer.steps_shown];
  const sum = (list: readonly unknown[]) => numbers(list).reduce((sum, item) => sum + item, 0);
  return {
    row: Number(rows.place[0] ?? 0),
    rows: sum(rows.ranks),
    column: Number(columns.place[0] ?? 0),
    columns: sum(columns.steps),
  };
}

function withMargin(sight: Viewport): Viewport {
  const [rows, columns] = [sight.rows * MARGIN, sight.columns * MARGIN];
  return {
    row: sight.row - rows,
    rows: sight.rows + 2 * rows,
    column: sight.column - columns,
    columns: sight.columns + 2 * columns,
  };
}

/** `room`: size of the plot in pixels. */
export function useHeatMap(
  query: () => Query,
  sight: Ref<Viewport | null>,
  room: () => { width: number; height: number },
) {
  const bounded = (px: number) => Math.max(1, Math.min(MAX_CELLS, Math.round(px)));
  const sizeQuery = () => ({ height: bounded(room().height), width: bounded(room().width) });
  const {
    data: overview,
    error,
    loading,
  } = useView<HeatmapAnswer>("view/heatmap", () => ({ ...query(), height: MAX_CELLS, width: sizeQuery().width }));
  const size = computed(() => ({ rows: overview.value?.ranks ?? 0, columns: overview.value?.steps ?? 0 }));
  const merges = computed(
    () =>
      overview.value !== null &&
      (overview.value.ranks_shown.rank.length < size.value.rows ||
        overview.value.steps_shown.step.length < size.value.columns),
  );
  const resting = refDebounced(sight, PAUSE_MS);
  const detailSight = computed(() =>
    resting.value && merges.value && !isFullViewport(resting.value, size.value)
      ? roundOutward(clampViewport(withMargin(resting.value), size.value))
      : null,
  );
  const { data: part } = useResource<HeatmapAnswer>(
    () =>
      detailSight.value ? viewAddress("view/heatmap", { ...query(), ...detailSight.value, ...sizeQuery() }) : null,
    () => fileStamp.value,
  );
  /** The detailed answer is drawn on top. */
  const answers = computed(() =>
    [overview.value, detailSight.value ? part.value : null].filter((answer) => answer !== null),
  );

  function cell(row: number, column: number): HeatCell | null {
    for (const answer of [...answers.value].reverse()) {
      const found = cellAt(answer, row, column);
      if (found) return found;
    }
    return null;
  }

  return { whole: overview, answers, size, error, loading, cell };
}
