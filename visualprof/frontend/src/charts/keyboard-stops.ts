// The values of a chart in the order of the arrow keys.
import type { JsonObject } from "../api/model";

/** A value at which ECharts shows its tooltip. Among series with a common axis, the first represents all. */
export interface Stop {
  series: number;
  index: number;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/**
 * Return the stops: categories or line points once for all series, slices and scatter points one by one. Silent series
 * have none.
 */
export function keyboardStops(option: JsonObject): Stop[] {
  const allSeries = [option["series"]]
    .flat()
    .map((series, seriesIndex) => ({ place: seriesIndex, series: isObject(series) ? series : {} }));
  const heard = allSeries.filter(
    ({ series }) => series["silent"] !== true && Array.isArray(series["data"]) && series["data"].length > 0,
  );
  const single = heard.some(({ series }) => series["type"] === "scatter" || series["type"] === "pie");
  return (single ? heard : heard.slice(0, 1)).flatMap(({ place, series }) =>
    (series["data"] as unknown[]).map((_, index) => ({ series: place, index })),
  );
}

/** Return the stop to which a key leads from `index` (-1: none yet), or null for other keys. */
export function nextStop(key: string, at: number, count: number): number | null {
  const page = Math.max(1, Math.round(count / 10));
  const targets: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowDown: at + 1,
    ArrowLeft: at - 1,
    ArrowUp: at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: count - 1,
  };
  const target = targets[key];
  return target === undefined || count === 0 ? null : Math.min(Math.max(target, 0), count - 1);
}

/** Return the x value of a stop of a line; NaN if it has no number. */
export function stopX(option: JsonObject, stop: Stop | undefined): number {
  const series = stop && [option["series"]].flat()[stop.series];
  const entry =
    isObject(series) && Array.isArray(series["data"]) && stop ? (series["data"][stop.index] as unknown) : null;
  return Array.isArray(entry) ? Number(entry[0]) : Number.NaN;
}
