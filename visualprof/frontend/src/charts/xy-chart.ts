// Charts with two numeric axes: curves over time, and points of a roofline.
import { escapeHtml } from "../lib/text";
import { styleBand } from "./band";
import { logTicks } from "./log-ticks";
import {
  axisFormat,
  styleAxis,
  styleLegend,
  objectList,
  tooltipStyle,
  type Context,
  type Option,
  type Resolved,
  type ValueFormatter,
} from "./theme";
import { TEXT_COLORS } from "./palette";

const LEGEND_PX = 32;
const MARK_COUNT = 5;
// Room for the name of a percentile next to the following one.
const MARK_PX = 15;

interface PointEntry {
  name: string;
  seriesName?: string;
  value: unknown;
  axisValue?: number;
  marker?: string;
}

function tableRow(label: string, value: string): string {
  return `<tr><td>${label}</td><td>${value}</td></tr>`;
}

function numbers(value: unknown): number[] {
  return Array.isArray(value) ? value.map(Number) : [];
}

/** Ticks of an axis of bytes are at powers of two: "256 MiB" instead of "238.4 MiB". */
export function byteStep(largest: number): number {
  const rough = Math.max(largest, 1) / MARK_COUNT;
  return 2 ** Math.ceil(Math.log2(rough) - 0.3);
}

function seriesPoints(series: Option): number[][] {
  return (Array.isArray(series["data"]) ? series["data"] : []).map(numbers);
}

/**
 * Stack areas over a numeric axis, which ECharts cannot do. Each area reaches down to 0 and lower areas are drawn over
 * higher ones. A point keeps its own value as the third number.
 */
function stacked(series: Option[]): Option[] {
  if (!series.some((item) => item["stack"])) return series;
  const below: number[] = [];
  return series.map((item, index) => {
    const data = seriesPoints(item).map(([x = 0, y = 0], index) => {
      const top = (below[index] ?? 0) + y;
      below[index] = top;
      return [x, top, y];
    });
    return { ...item, stack: null, data, z: 2 + series.length - index, areaStyle: { opacity: 1 } };
  });
}

function largestValue(series: Option[]): number {
  let largest = 0;
  for (const item of series) {
    const limits = objectList(objectList(item["markLine"])[0]?.["data"]).map((mark) => Number(mark["yAxis"] ?? 0));
    largest = Math.max(largest, ...limits);
    for (const [, y = 0] of seriesPoints(item)) largest = Math.max(largest, y);
  }
  return largest;
}

function linesTooltip(x: ValueFormatter, y: ValueFormatter): (params: PointEntry | PointEntry[]) => string {
  return (params) => {
    const entries = Array.isArray(params) ? params : [params];
    const rows = entries.filter((entry) => entry.seriesName !== undefined && Number.isFinite(numbers(entry.value)[1]));
    const body = rows.map((entry) =>
      tableRow(
        `${entry.marker ?? ""}${escapeHtml(entry.seriesName ?? "")}`,
        y(numbers(entry.value)[2] ?? numbers(entry.value)[1]),
      ),
    );
    return `<div class="chart-tip-name">${x(entries[0]?.axisValue)}</div><table>${body.join("")}</table>`;
  };
}

/** Style vertical lines with labels. If two labels are too close, only the first is shown. */
function uprightMarks(marks: Option[], xs: readonly number[], log: boolean, width: number): Option[] {
  const toLinear = (x: number) => (log ? Math.log(Math.max(x, 1)) : x);
  const [first, last] = [toLinear(xs[0] ?? 0), toLinear(xs[xs.length - 1] ?? 1)];
  let lastX = -MARK_PX;
  return marks.map((mark) => {
    const at = ((toLinear(Number(mark["xAxis"])) - first) / (last - first || 1)) * width;
    const room = at - lastX >= MARK_PX;
    if (room) lastX = at;
    return { ...mark, label: { show: room } };
  });
}

function styleMarks(lineSeries: Option, y: ValueFormatter, context: Context, log: boolean): Option {
  const ink = TEXT_COLORS[context.theme];
  const labelFormatter: ValueFormatter = (entry) => {
    const { name, value, data } = entry as { name: string; value: unknown; data?: { coord?: number[] } };
    return `${name} ${y(data?.coord?.[1] ?? value)}`;
  };
  const label = {
    color: ink.text,
    fontSize: 11,
    textBorderColor: ink.surface,
    textBorderWidth: 3,
    formatter: labelFormatter,
  };
  const point = objectList(lineSeries["markPoint"])[0];
  const xs = seriesPoints(lineSeries).map(([x = 0]) => x);
  const peak = numbers(objectList(point?.["data"])[0]?.["coord"])[0] ?? 0;
  // On the side with more room, so that the label covers no axis.
  const right = peak < ((xs[0] ?? 0) + (xs[xs.length - 1] ?? 0)) / 2;
  const line = objectList(lineSeries["markLine"])[0];
  const upright = objectList(line?.["data"]).some((mark) => "xAxis" in mark);
  if (line && upright) {
    const data = uprightMarks(objectList(line["data"]), xs, log, context.width - 60);
    return {
      ...lineSeries,
      markLine: {
        ...line,
        data,
        symbol: "none",
        silent: true,
        lineStyle: { color: ink.muted, type: "dashed" },
        label: { ...label, position: "insideEndBottom", formatter: "{b}" },
      },
    };
  }
  return {
    ...lineSeries,
    ...(point && {
      markPoint: {
        ...point,
        symbol: "circle",
        symbolSize: 8,
        silent: true,
        label: { ...label, position: right ? "right" : "left" },
      },
    }),
    ...(line && {
      markLine: {
        ...line,
        symbol: "none",
        silent: true,
        lineStyle: { color: ink.muted, type: "dashed" },
        label: { ...label, position: "insideStartTop" },
      },
    }),
  };
}

function hideEndLabels(axis: Option): Option {
  return { ...axis, axisLabel: { ...(axis["axisLabel"] as Option), showMinLabel: false, showMaxLabel: false } };
}

export function styleLines(option: Option, format: ValueFormatter, context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  const [xAxis = {}] = objectList(option["xAxis"]);
  const [yAxis = {}] = objectList(option["yAxis"]);
  const [x, y] = [axisFormat(xAxis) ?? format, axisFormat(yAxis) ?? format];
  const series = stacked(objectList(option["series"]));
  const min = Math.min(0, ...axisValues(series, 1).filter(Number.isFinite));
  const step = byteStep(largestValue(series) - min);
  // Other units have round decimal numbers, which ECharts finds itself.
  const below: Option = min < 0 ? { min: Math.floor(min / step) * step } : {};
  const yMarks: Option =
    y.unit === "bytes" ? { interval: step, max: Math.ceil((largestValue(series) / step) * 1.02) * step, ...below } : {};
  return {
    ...option,
    legend: styleLegend(context),
    // The topmost tick may coincide with the label of the peak.
    grid: {
      left: 4,
      right: 24,
      top: (context.legend === false ? 0 : LEGEND_PX) + 12,
      bottom: 4,
      outerBoundsMode: "same",
      outerBoundsContain: "all",
    },
    tooltip: {
      ...tooltipStyle(context),
      trigger: "axis",
      axisPointer: { type: "line", lineStyle: { color: ink.muted } },
      formatter: linesTooltip(x, y) as unknown as ValueFormatter,
    },
    xAxis: {
      // The ends are not round; the ticks between them are enough.
      ...hideEndLabels(styleAxis(xAxis, x, context)),
      ...closeTicks(xAxis, styleAxis(xAxis, x, context), axisValues(series, 0)),
      min: "dataMin",
      max: "dataMax",
      splitLine: { show: false },
      axisLine: { show: true, onZero: false, lineStyle: { color: ink.line } },
    },
    yAxis: { ...styleAxis(yAxis, y, context), ...yMarks },
    series: series.map((item) =>
      item["type"] === "scatter"
        ? {
            ...item,
            symbolSize: 9,
            itemStyle: { color: ink.text, borderColor: ink.surface, borderWidth: 1.5 },
            cursor: "pointer",
          }
        : {
            ...styleMarks(item, y, context, xAxis["type"] === "log"),
            symbol: "none",
            lineStyle: { width: 1.5, ...(item["lineStyle"] as Option | undefined) },
            cursor: "crosshair",
          },
    ),
  };
}

/** Return the tooltip of a point: its name, its series, and every number that the server lists. */
export function pointTooltip(fields: Option[]): (entry: PointEntry) => string {
  return (entry) => {
    const values = numbers(entry.value);
    const rows = fields.map((field, index) => {
      const format = field["formatter"];
      return tableRow(
        escapeHtml(String(field["name"])),
        typeof format === "function" ? format(values[index]) : String(values[index]),
      );
    });
    const series =
      entry.seriesName && entry.seriesName !== entry.name
        ? tableRow(`${entry.marker ?? ""}${escapeHtml(entry.seriesName)}`, "")
        : "";
    return `<div class="chart-tip-name">${escapeHtml(entry.name)}</div><table>${series}${rows.join("")}</table>`;
  };
}

/** Return the numbers of all series along one axis: `value` of points, or the point itself for lines. */
function axisValues(series: Option[], axis: 0 | 1): number[] {
  return series.flatMap((item) =>
    (Array.isArray(item["data"]) ? item["data"] : []).map(
      (entry) => numbers(Array.isArray(entry) ? entry : objectList(entry)[0]?.["value"])[axis] ?? Number.NaN,
    ),
  );
}

function closeTicks(axis: Option, dressed: Option, values: readonly number[]): Option {
  const marks = axis["type"] === "log" && axis["logBase"] === undefined ? logTicks(values) : null;
  return marks
    ? {
        min: marks.min,
        max: marks.max,
        axisTick: { show: false, customValues: marks.ticks },
        axisLabel: { ...(dressed["axisLabel"] as Option), customValues: marks.ticks },
      }
    : {};
}

function styleLogAxis(
  axis: Option,
  format: ValueFormatter,
  context: Context,
  down: boolean,
  values: readonly number[],
): Option {
  const dressed = styleAxis(axis, format, context);
  const gap = down
    ? { nameGap: 26 }
    : { nameGap: 12, nameTextStyle: { color: TEXT_COLORS[context.theme].muted, fontSize: 11, align: "left" } };
  return { ...dressed, ...closeTicks(axis, dressed, values), nameLocation: down ? "middle" : "end", ...gap } as Option;
}

export function styleScatter(option: Option, format: ValueFormatter, context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  const [xAxis = {}] = objectList(option["xAxis"]);
  const [yAxis = {}] = objectList(option["yAxis"]);
  const series = objectList(option["series"]);
  const fields = objectList(objectList(option["tooltip"])[0]?.["fields"]);
  const emphasis: Resolved = {
    scale: 1.3,
    itemStyle: { borderColor: ink.text, borderWidth: 2, opacity: 1 },
    label: {
      show: true,
      position: "top",
      color: ink.text,
      textBorderColor: ink.surface,
      textBorderWidth: 3,
      formatter: "{b}",
    },
  };
  return {
    ...option,
    legend: styleLegend(context),
    grid: {
      left: 4,
      right: 20,
      top: LEGEND_PX + 24,
      bottom: 22,
      outerBoundsMode: "same",
      outerBoundsContain: "axisLabel",
    },
    tooltip: {
      ...tooltipStyle(context),
      trigger: "item",
      formatter: pointTooltip(fields) as unknown as ValueFormatter,
    },
    xAxis: styleLogAxis(xAxis, axisFormat(xAxis) ?? format, context, true, axisValues(series, 0)),
    yAxis: styleLogAxis(yAxis, axisFormat(yAxis) ?? format, context, false, axisValues(series, 1)),
    series: objectList(option["series"]).map((item) =>
      item["type"] === "scatter"
        ? {
            ...item,
            ...(item["label"]
              ? {
                  labelLayout: { hideOverlap: true },
                  label: { ...(item["label"] as Option), color: ink.muted, fontSize: 10 },
                }
              : {}),
            itemStyle: { ...objectList(item["itemStyle"])[0], opacity: 0.75, borderColor: ink.surface, borderWidth: 1 },
            emphasis,
            cursor: "pointer",
          }
        : item["type"] === "custom"
          ? styleBand(item)
          : item,
    ),
  };
}
