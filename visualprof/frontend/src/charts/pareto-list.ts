// A ring chart of the server as a Pareto list: the largest values first, each with its share and the cumulative share.
import type { JsonObject } from "../api/model";

export interface ParetoRow {
  /** "" for the sum of all other values. */
  name: string;
  value: number;
  share: number;
  cumulative: number;
  /** Length of the bar relative to the longest one. */
  length: number;
}

const REST = "@t:chart.rest";

/** Return the rows of a ring chart whose data are sorted. */
export function paretoRows(option: JsonObject): ParetoRow[] {
  const series = option["series"] as { data: { name: string; value: number }[] }[];
  const data = series[0]?.data ?? [];
  const total = data.reduce((sum, { value }) => sum + value, 0);
  const longest = Math.max(0, ...data.map(({ value }) => value));
  let sum = 0;
  return data.map(({ name, value }) => {
    sum += value;
    return {
      name: name === REST ? "" : name,
      value,
      share: total > 0 ? value / total : 0,
      cumulative: total > 0 ? sum / total : 0,
      length: longest > 0 ? value / longest : 0,
    };
  });
}
