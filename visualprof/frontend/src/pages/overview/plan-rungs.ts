// The rows of a plan as objects, with the position of each bar.
import type { PlanAnswer } from "../../api/model";
import { formatDuration, formatRatio } from "../../lib/format";
import { t } from "../../locales";

type RungColumns = PlanAnswer["rungs"]["columns"];
type RungCells = { [Name in keyof RungColumns]: RungColumns[Name][number] };

/** A row of the plan: a change with its predicted step time, or one without a prediction. */
export interface Rung extends RungCells {
  /** All changes up to this one, for the replay. */
  together: string;
  /** Step time after the change, as a share of the recorded one. */
  after: number;
  /** Step time before the change, as a share of the recorded one. */
  before: number;
}

/** The change that comes before the others, because they cannot shorten the wait for a late rank. */
const FIRST_LEVER = "balanced_ranks";

/**
 * Return what comes before the plan, the changes with a predicted step time in their order, and then the others.
 */
export function planRungs({ baseline_ns, rungs }: PlanAnswer): { first: Rung[]; planned: Rung[]; possible: Rung[] } {
  const { columns } = rungs;
  const first: Rung[] = [];
  const planned: Rung[] = [];
  const possible: Rung[] = [];
  let before = 1;
  let together = "";
  for (const index of columns.lever.keys()) {
    const cells = Object.fromEntries(
      Object.entries(columns).map(([name, column]) => [name, column[index] ?? null]),
    ) as unknown as RungCells;
    if (cells.step_ns === null) {
      const rows = cells.lever === FIRST_LEVER ? first : possible;
      rows.push({ ...cells, together: cells.change ?? "", after: before, before });
      continue;
    }
    const after = baseline_ns > 0 ? cells.step_ns / baseline_ns : 0;
    together = together ? `${together}; ${cells.change ?? ""}` : (cells.change ?? "");
    planned.push({ ...cells, together, after, before });
    before = after;
  }
  return { first, planned, possible };
}

/** Return what a change saves, or its upper bound, or how many samples more per second it allows. */
export function effectText(rung: Rung): string {
  if (rung.gain_ns !== null)
    return t("plan.saves", { time: formatDuration(rung.gain_ns), ratio: formatRatio(rung.gain_ratio ?? 0) });
  if (rung.throughput_ratio !== null) return t("plan.samples", { ratio: `+${formatRatio(rung.throughput_ratio)}` });
  return rung.most_ns === null ? t("plan.unknown") : t("plan.at_most", { time: formatDuration(rung.most_ns) });
}
