// Additions to the server's charts: the latency limit as a line, and a name for an axis of several percentiles.
import type { JsonObject } from "../../api/model";
import { formatDuration } from "../../lib/format";

const AXES: Record<string, "xAxis" | "yAxis"> = { latency: "yAxis", tradeoff: "xAxis", load: "yAxis" };

/** `loadNs`: the limit with which loads were measured; 0 if there is none or there are several. */
export function withLimit(charts: Record<string, JsonObject>, limitNs: number, loadNs = 0): Record<string, JsonObject> {
  if (!(limitNs > 0) && !(loadNs > 0)) return charts;
  return Object.fromEntries(
    Object.entries(charts).map(([name, option]) => [
      name,
      addLimit(option, AXES[name], name === "load" ? loadNs || limitNs : limitNs),
    ]),
  );
}

function addLimit(option: JsonObject, axis: "xAxis" | "yAxis" | undefined, limitNs: number): JsonObject {
  if (axis === undefined || !(limitNs > 0) || !Array.isArray(option["series"])) return option;
  const label = {
    formatter: `≤ ${formatDuration(limitNs)}`,
    color: "@c:limit",
    fontSize: 11,
    position: axis === "yAxis" ? "insideEndTop" : "end",
  };
  const line = {
    type: "line",
    name: "@t:evaluation.limit",
    data: [],
    itemStyle: { color: "@c:limit" },
    markLine: {
      silent: true,
      symbol: "none",
      lineStyle: { color: "@c:limit", type: "dashed", width: 1.5 },
      label,
      data: [{ [axis]: limitNs }],
    },
  };
  return { ...option, series: [...option["series"], line] };
}

/** The lines above it are p50, p95 and p99. */
export function withLatencyAxis(charts: Record<string, JsonObject>): Record<string, JsonObject> {
  const latency = charts["latency"];
  const axis = latency?.["yAxis"];
  if (!latency || typeof axis !== "object" || axis === null || Array.isArray(axis)) return charts;
  return { ...charts, latency: { ...latency, yAxis: { ...axis, name: "@t:evaluation.latency" } } };
}
