// The wanted latency as a line in the charts that have a latency axis.
import type { JsonObject } from "../api/model";

const AXES: Record<string, "xAxis" | "yAxis"> = { latency: "yAxis", tradeoff: "xAxis" };

export function with_limit(charts: Record<string, JsonObject>, limit_ns: number): Record<string, JsonObject> {
  if (!(limit_ns > 0)) return charts;
  return Object.fromEntries(Object.entries(charts).map(([name, option]) => [name, limited(option, AXES[name], limit_ns)]));
}

function limited(option: JsonObject, axis: "xAxis" | "yAxis" | undefined, limit_ns: number): JsonObject {
  if (axis === undefined || !Array.isArray(option["series"])) return option;
  const line = { type: "line", name: "@t:evaluation.limit", data: [], markLine: { silent: true, symbol: "none", lineStyle: { color: "@c:limit", type: "dashed", width: 1.5 }, label: { show: false }, data: [{ [axis]: limit_ns }] } };
  return { ...option, series: [...option["series"], line] };
}
