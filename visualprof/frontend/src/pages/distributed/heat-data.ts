// What the map knows: all of it as coarse as the screen is, and, nearer, the part in sight cell by cell.
import { refDebounced } from "@vueuse/core";
import { computed, type Ref } from "vue";
import type { HeatmapAnswer, Query } from "../../api";
import { file_stamp, useResource, useView, view_address } from "../../state";
import { bin_of, is_whole, outward, within, type Sight } from "./heat-sight";

const MOST = 512;
const PAUSE_MS = 120;
// So much more than what is in sight is asked for, so that a small move needs no other answer.
const MARGIN = 0.25;

/** Its place among all rows and columns, and how many of both it merges. */
export interface HeatCell extends Sight {
  value: number | null;
  median: number | null;
  mean: number | null;
  /** The first rank and step of it. */
  rank: number;
  worker: string;
  host: string;
  group: string;
  step: string;
  last_step: string;
}

const numbers = (list: readonly unknown[] | undefined) => (list ?? []).map(Number);
const number_or_null = (value: unknown) => (typeof value === "number" ? value : null);

/** The cell of an answer at a place of the map; null where that is beside it. */
export function cell_at(answer: HeatmapAnswer, row: number, column: number): HeatCell | null {
  const [rows, columns] = [answer.ranks_shown, answer.steps_shown];
  const [places, at_steps] = [numbers(rows.place), numbers(columns.place)];
  const [i, j] = [bin_of(places, row), bin_of(at_steps, column)];
  const [ranks, steps] = [Number(rows.ranks[i] ?? 0), Number(columns.steps[j] ?? 0)];
  if (i < 0 || j < 0 || row >= (places[i] ?? 0) + ranks || column >= (at_steps[j] ?? 0) + steps) return null;
  return {
    value: answer.cells_ns[i * at_steps.length + j] ?? null,
    median: number_or_null(columns.median_ns[j]),
    mean: number_or_null(rows.mean_ns[i]),
    rank: Number(rows.rank[i]),
    worker: String(rows.worker[i] ?? ""),
    host: String(rows.host[i] ?? ""),
    group: String(rows.group[i] ?? ""),
    step: String(columns.step[j] ?? ""),
    last_step: String(columns.last[j] ?? ""),
    row: places[i] ?? 0,
    rows: ranks,
    column: at_steps[j] ?? 0,
    columns: steps,
  };
}

/** The rank, or the step, of a row, or a column, as the last of some answers that has it says. */
export function name_at(answers: readonly HeatmapAnswer[], place: number, what: "row" | "column"): string {
  for (const answer of [...answers].reverse()) {
    const places = numbers(what === "row" ? answer.ranks_shown.place : answer.steps_shown.place);
    const names = what === "row" ? answer.ranks_shown.rank : answer.steps_shown.step;
    const at = bin_of(places, place);
    if (at >= 0 && at < names.length) return String(names[at]);
  }
  return "";
}

/** The stretch of the map that an answer has. */
export function extent_of(answer: HeatmapAnswer): Sight {
  const [rows, columns] = [answer.ranks_shown, answer.steps_shown];
  const sum = (list: readonly unknown[]) => numbers(list).reduce((all, one) => all + one, 0);
  return {
    row: Number(rows.place[0] ?? 0),
    rows: sum(rows.ranks),
    column: Number(columns.place[0] ?? 0),
    columns: sum(columns.steps),
  };
}

function with_margin(sight: Sight): Sight {
  const [rows, columns] = [sight.rows * MARGIN, sight.columns * MARGIN];
  return {
    row: sight.row - rows,
    rows: sight.rows + 2 * rows,
    column: sight.column - columns,
    columns: sight.columns + 2 * columns,
  };
}

/** `room`: pixels of the plot. */
export function useHeat(query: () => Query, sight: Ref<Sight | null>, room: () => { width: number; height: number }) {
  const bounded = (px: number) => Math.max(1, Math.min(MOST, Math.round(px)));
  const size_query = () => ({ height: bounded(room().height), width: bounded(room().width) });
  const {
    data: whole,
    error,
    loading,
  } = useView<HeatmapAnswer>("view/heatmap", () => ({ ...query(), height: MOST, width: size_query().width }));
  const size = computed(() => ({ rows: whole.value?.ranks ?? 0, columns: whole.value?.steps ?? 0 }));
  const merges = computed(
    () =>
      whole.value !== null &&
      (whole.value.ranks_shown.rank.length < size.value.rows ||
        whole.value.steps_shown.step.length < size.value.columns),
  );
  const resting = refDebounced(sight, PAUSE_MS);
  const near = computed(() =>
    resting.value && merges.value && !is_whole(resting.value, size.value)
      ? outward(within(with_margin(resting.value), size.value))
      : null,
  );
  const { data: part } = useResource<HeatmapAnswer>(
    () => (near.value ? view_address("view/heatmap", { ...query(), ...near.value, ...size_query() }) : null),
    () => file_stamp.value,
  );
  /** The nearer one lies on top. */
  const answers = computed(() => [whole.value, near.value ? part.value : null].filter((one) => one !== null));

  function cell(row: number, column: number): HeatCell | null {
    for (const one of [...answers.value].reverse()) {
      const found = cell_at(one, row, column);
      if (found) return found;
    }
    return null;
  }

  return { whole, answers, size, error, loading, cell };
}
