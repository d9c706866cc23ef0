// Converts server options to ECharts options in two pure steps: replace tokens by values, then apply the style.
import type { Json, JsonObject } from "../api/model";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatIntensity,
  formatMoment,
  formatOperationRate,
  formatRate,
  formatRatio,
} from "../lib/format";
import { abbreviate, escapeHtml } from "../lib/text";
import {
  styleAxis,
  styleLegend,
  objectList,
  tooltipStyle,
  type Context,
  type Option,
  type Resolved,
  type ValueFormatter,
} from "./theme";
import { categoryColor, TEXT_COLORS, seriesColors } from "./palette";
import { styleLines, styleScatter } from "./xy-chart";

const FONT = getComputedStyle(document.documentElement).getPropertyValue("--sans") || "sans-serif";

const FORMATTERS: Record<string, (value: number) => string> = {
  ns: formatDuration,
  bytes: formatBytes,
  count: formatCount,
  ratio: formatRatio,
  rate: formatRate,
  flop_rate: formatOperationRate,
  intensity: formatIntensity,
  moment: formatMoment,
};

/** ECharts passes a number, a list or an event object to formatters, depending on their position. */
function valueFormatter(name: string): ValueFormatter {
  const format = FORMATTERS[name] ?? formatCount;
  const formatter: ValueFormatter = (entry) => {
    const value = typeof entry === "object" && entry !== null && "value" in entry ? entry.value : entry;
    const number = Number(Array.isArray(value) ? value[value.length - 1] : value);
    return Number.isFinite(number) ? format(number) : "–";
  };
  return Object.assign(formatter, { unit: name });
}

/** Whether a string is a token. All other strings are user data and shown unchanged. */
export function isToken(text: unknown): boolean {
  return typeof text === "string" && /^@[tcf]:/.test(text);
}

export function resolveTokens(value: Json, context: Context): Resolved {
  if (typeof value === "string") {
    if (!isToken(value)) return value;
    const name = value.slice(3);
    if (value[1] === "t") return context.text(name);
    return value[1] === "c" ? categoryColor(name, context.theme) : valueFormatter(name);
  }
  if (Array.isArray(value)) return value.map((entry) => resolveTokens(entry, context));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, resolveTokens(entry, context)]));
}

/** Slices for the remainder get the neutral color, so that hues keep their meaning. */
function neutralRest(value: Json): Json {
  if (Array.isArray(value)) return value.map(neutralRest);
  if (typeof value !== "object" || value === null) return value;
  const rest = /^@t:.*(rest|unused)$/.test(String(value["name"])) && "value" in value;
  if (rest) return { ...value, itemStyle: { color: "@c:other" } };
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, neutralRest(entry)]));
}

/** Return the first formatter in the option: a chart has one unit. */
function unitFormatter(value: Resolved): ValueFormatter | null {
  if (typeof value === "function") return value;
  if (typeof value !== "object" || value === null) return null;
  for (const entry of Object.values(value)) {
    const formatter = unitFormatter(entry);
    if (formatter) return formatter;
  }
  return null;
}

interface TooltipEntry {
  name: string;
  seriesName?: string;
  value: unknown;
  percent?: number;
  marker?: string;
}

function numeric(value: unknown): number {
  const last = Array.isArray(value) ? value[value.length - 1] : value;
  return Number(last) || 0;
}

export function sliceTooltip(format: ValueFormatter): (entry: TooltipEntry) => string {
  return (entry) =>
    `<div class="chart-tip-name">${escapeHtml(entry.name)}</div>` +
    `${entry.marker ?? ""}<b>${format(numeric(entry.value))}</b> (${(entry.percent ?? 0).toFixed(1)} %)`;
}

export function axisTooltip(
  format: ValueFormatter,
  total: string,
  axis = "",
): (entries: TooltipEntry | TooltipEntry[]) => string {
  return (params) => {
    const entries = Array.isArray(params) ? params : [params];
    const nonZero = entries.filter((entry) => numeric(entry.value) !== 0);
    const row = (label: string, value: number) => `<tr><td>${label}</td><td>${format(value)}</td></tr>`;
    const rows = nonZero.map((entry) =>
      row(`${entry.marker ?? ""}${entries.length > 1 ? escapeHtml(entry.seriesName ?? "") : ""}`, numeric(entry.value)),
    );
    const sum = nonZero.reduce((total, entry) => total + numeric(entry.value), 0);
    if (nonZero.length > 1) rows.push(row(escapeHtml(total), sum));
    return `<div class="chart-tip-name">${escapeHtml([axis, entries[0]?.name].filter(Boolean).join(" "))}</div><table>${rows.join("")}</table>`;
  };
}

function stylePie(option: Option, format: ValueFormatter, context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  const series = objectList(option["series"]);
  const values = new Map(
    objectList(series[0]?.["data"]).map((slice) => [String(slice["name"]), numeric(slice["value"])]),
  );
  const sum = [...values.values()].reduce((total, value) => total + value, 0);
  const limit = Math.max(10, Math.floor((context.width * 0.56 - 90) / 7.2));
  return {
    ...option,
    legend: {
      ...styleLegend(context),
      orient: "vertical",
      left: "42%",
      top: "middle",
      itemGap: 6,
      tooltip: {
        ...tooltipStyle(context),
        show: true,
        formatter: ((entry: TooltipEntry) => escapeHtml(entry.name)) as ValueFormatter,
      },
      formatter: ((name) =>
        `${abbreviate(String(name), limit)}  ${formatRatio((values.get(String(name)) ?? 0) / (sum || 1))}`) as ValueFormatter,
    },
    tooltip: { ...tooltipStyle(context), trigger: "item", formatter: sliceTooltip(format) as ValueFormatter },
    series: series.map((item) => ({
      ...item,
      type: "pie",
      center: [context.legend === false ? "50%" : "20.5%", "50%"],
      radius: ["48%", "84%"],
      label: { show: false },
      labelLine: { show: false },
      // Zero slices would be meaningless hairlines. A single slice needs no gap.
      itemStyle: { borderColor: ink.surface, borderWidth: values.size > 1 ? 1.5 : 0 },
      minAngle: 1,
      emphasis: { scaleSize: 4 },
    })),
  };
}

/**
 * Bars of categories are horizontal, so that each category is readable. Without parts, they have the category's color.
 */
function categoryBars(server: JsonObject): JsonObject {
  const axis = server["xAxis"];
  const series = server["series"];
  if (typeof axis !== "object" || axis === null || Array.isArray(axis)) return server;
  const names = axis["data"];
  if (!Array.isArray(series) || !Array.isArray(names) || !names.every(isToken)) return server;
  const lying = { ...server, xAxis: server["yAxis"] ?? { type: "value" }, yAxis: { ...axis, inverse: true } };
  const [firstSeries] = series;
  if (
    series.length !== 1 ||
    typeof firstSeries !== "object" ||
    firstSeries === null ||
    Array.isArray(firstSeries) ||
    !Array.isArray(firstSeries["data"])
  )
    return lying;
  const data: Json[] = firstSeries["data"].map((value, index) => ({
    value,
    itemStyle: { color: `@c:${String(names[index]).replace(/^.*[.:]|\|.*$/g, "")}` },
  }));
  return { ...lying, series: [{ ...firstSeries, data }] };
}

function steppedBack(series: Option, categories: Resolved | undefined, selected: string | null | undefined): Option {
  const data = series["data"];
  if (!Array.isArray(categories) || !Array.isArray(data) || !selected || !categories.includes(selected)) return series;
  return {
    ...series,
    data: data.map((value, index) => (categories[index] === selected ? value : { value, itemStyle: { opacity: 0.3 } })),
  };
}

function styleBars(option: Option, format: ValueFormatter, context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  const xAxes = objectList(option["xAxis"]);
  const categories = xAxes[0]?.["data"];
  const zoomed = Array.isArray(categories) && categories.length > 80;
  const several = objectList(option["series"]).length > 1;
  return {
    ...option,
    legend: several ? styleLegend(context) : { show: false },
    grid: {
      left: 4,
      right: 16,
      top: several ? 32 : 12,
      bottom: zoomed ? 34 : 4,
      outerBoundsMode: "same",
      outerBoundsContain: "all",
    },
    tooltip: {
      ...tooltipStyle(context),
      trigger: "axis",
      axisPointer: { type: "shadow" },
      formatter: axisTooltip(format, context.text("chart.total"), String(xAxes[0]?.["name"] ?? "")) as ValueFormatter,
    },
    dataZoom: zoomed
      ? [
          {
            type: "slider",
            height: 18,
            bottom: 6,
            brushSelect: false,
            borderColor: ink.line,
            textStyle: { color: ink.muted },
          },
          { type: "inside", zoomOnMouseWheel: "ctrl" },
        ]
      : [],
    xAxis: xAxes.map((axis) => styleAxis(axis, format, context)),
    yAxis: objectList(option["yAxis"]).map((axis) => styleAxis(axis, format, context)),
    series: objectList(option["series"]).map((item) => ({
      ...steppedBack(item, categories, context.selected),
      label: { show: false },
      barMaxWidth: Array.isArray(categories) ? 44 : 22,
      cursor: "pointer",
    })),
  };
}

// Of several series types, the first one defines the chart: points may come with lines, and lines with points.
const STYLES: Record<string, typeof styleBars> = { pie: stylePie, scatter: styleScatter, line: styleLines };

/** Return the complete option for `setOption`, without the title, which the card around the chart shows. */
export function chartOption(server: JsonObject, context: Context): Option {
  const resolved = resolveTokens(neutralRest(categoryBars(server)), context) as Option;
  const format = unitFormatter(resolved) ?? valueFormatter("count");
  const option: Option = { ...resolved, title: { show: false } };
  const kinds = objectList(option["series"]).map((item) => String(item["type"]));
  const kind = kinds.find((candidate) => candidate in STYLES) ?? "bar";
  const dressed = (STYLES[kind] ?? styleBars)(option, format, context);
  return {
    ...dressed,
    animation: false,
    textStyle: { fontFamily: FONT },
    backgroundColor: "transparent",
    color: seriesColors(context.theme),
  };
}

/** Whether the chart needs more than bars and rings (engine-more.ts). */
export function needsMoreParts(option: Option): boolean {
  return (
    objectList(option["series"]).some((item) => item["type"] !== "bar" && item["type"] !== "pie") ||
    objectList(option["dataZoom"]).length > 0
  );
}
