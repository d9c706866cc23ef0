// The common style of all charts: axes and tooltips.
import { shorten } from "../lib/text";
import type { ThemeName } from "../lib/color";
import { TEXT_COLORS } from "./palette";

export type ValueFormatter = ((value: unknown) => string) & { unit?: string };
export type Resolved = string | number | boolean | null | ValueFormatter | Resolved[] | { [key: string]: Resolved };
export type Option = { [key: string]: Resolved };

export interface Context {
  /** Class name of this chart's tooltip, which is appended to the body. */
  id?: string;
  theme: ThemeName;
  text: (key: string) => string;
  /** CSS pixels; decides how much of a name fits into the legend. */
  width: number;
  /** False if a table next to the chart names the slices. */
  legend?: boolean;
  /** The highlighted category; the others are dimmed. */
  selected?: string | null;
}

// A name of this length leaves room for a second one on half a page.
const LEGEND_CHARACTERS = 30;

export function objectList(value: Resolved | undefined): Option[] {
  const list = Array.isArray(value) ? value : [value];
  return list.filter((entry): entry is Option => typeof entry === "object" && entry !== null && !Array.isArray(entry));
}

/** The unit of the axis, if a chart has several. */
export function axisFormat(axis: Option | undefined): ValueFormatter | null {
  const formatter = objectList(axis?.["axisLabel"])[0]?.["formatter"];
  return typeof formatter === "function" ? formatter : null;
}

export function styleAxis(axis: Option, format: ValueFormatter, context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  const isValue = axis["type"] === "value" || axis["type"] === "log";
  const label: Option = { color: ink.muted, fontSize: 11, hideOverlap: true };
  // Axis ticks are round numbers, so that "90.0 ms" would suggest too much precision; 0 needs no unit.
  const mark: ValueFormatter = (value) =>
    value === 0
      ? "0"
      : format(value)
          .replace(/(\.\d*?)0+(?=\D|$)/, "$1")
          .replace(/\.(?=\D|$)/, "");
  label["formatter"] = isValue ? mark : (((name) => shorten(String(name), 24)) as ValueFormatter);
  return {
    ...axis,
    axisLabel: label,
    nameTextStyle: { color: ink.muted, fontSize: 11 },
    axisLine: { show: !isValue, lineStyle: { color: ink.line } },
    axisTick: { show: false },
    splitLine: { show: isValue, lineStyle: { color: ink.line } },
  };
}

export function styleLegend(context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  return {
    show: context.legend !== false,
    type: "scroll",
    top: 0,
    left: 0,
    itemWidth: 10,
    itemHeight: 10,
    icon: "roundRect",
    textStyle: { color: ink.text, fontSize: 12 },
    formatter: ((name) => shorten(String(name), LEGEND_CHARACTERS)) as ValueFormatter,
    pageTextStyle: { color: ink.muted },
    pageIconColor: ink.muted,
    pageIconInactiveColor: ink.line,
    pageIconSize: 10,
  };
}

export function tooltipStyle(context: Context): Option {
  const ink = TEXT_COLORS[context.theme];
  return {
    confine: true,
    appendTo: "body",
    className: `chart-tip ${context.id ?? ""}`,
    backgroundColor: ink.surface,
    borderColor: ink.line,
    textStyle: { color: ink.text, fontSize: 12 },
    extraCssText: "max-width: 480px; white-space: normal; overflow-wrap: anywhere;",
  };
}
