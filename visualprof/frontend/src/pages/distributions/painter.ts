// Draws the histograms of a line on a canvas: one below the other, on the same axes, as a heat map, or as quantiles.
import type { HistogramLine } from "../../api";
import { TEXT_COLORS } from "../../charts/palette";
import type { ThemeName } from "../../lib/color";
import { createScale, ticks, type Scale } from "../../run-data/plot";
import { formatValue } from "../../run-data/positions";

export type Mode = "offset" | "overlay" | "heat" | "quantiles";

export interface PlotOptions {
  width: number;
  height: number;
  theme: ThemeName;
  color: string;
  mode: Mode;
}

const MARGIN = { left: 54, right: 12, top: 8, bottom: 22 };
const TICK_PX = { x: 60, y: 32 };
const OFFSET_SHARE = 0.55; // of the height, over which the baselines of the histograms are spread
const BANDS = [0, 1, 2, 3] as const; // pairs of quantiles from outside in

interface Axes {
  x: Scale;
  y: Scale;
}

/** Return the axes of a mode: values and counts, or steps and values. */
export function createAxes(edges: readonly number[], line: HistogramLine, options: PlotOptions): Axes {
  const steps = line.step as number[];
  const values = { min: edges[0] ?? 0, max: edges.at(-1) ?? 1 };
  const [first, last] = [steps[0] ?? 0, steps.at(-1) ?? 0];
  const overSteps = options.mode === "heat" || options.mode === "quantiles";
  const wide = first < last ? { min: first, max: last } : { min: first - 0.5, max: first + 0.5 };
  const top = Math.max(...line.counts.flat(), 1e-12);
  return {
    x: createScale(overSteps ? wide : values, MARGIN.left, options.width - MARGIN.right, false),
    y: createScale(overSteps ? values : { min: 0, max: top }, options.height - MARGIN.bottom, MARGIN.top, false),
  };
}

export function paint(
  context: CanvasRenderingContext2D,
  edges: readonly number[],
  line: HistogramLine,
  options: PlotOptions,
): void {
  const axes = createAxes(edges, line, options);
  context.clearRect(0, 0, options.width, options.height);
  drawAxes(context, axes, options);
  context.fillStyle = context.strokeStyle = options.color;
  context.lineWidth = 1.2;
  if (options.mode === "heat") drawHeat(context, axes, edges, line);
  else if (options.mode === "quantiles") drawQuantiles(context, axes, line);
  else drawHistograms(context, axes, edges, line, options);
  context.globalAlpha = 1;
}

function drawAxes(
  context: CanvasRenderingContext2D,
  { x, y }: Axes,
  { width, height, theme, mode }: PlotOptions,
): void {
  const ink = TEXT_COLORS[theme];
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = ink.muted;
  context.strokeStyle = ink.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of mode === "offset" ? [] : ticks(y.range, height / TICK_PX.y, false)) {
    const at = Math.round(y.toPx(tick)) + 0.5;
    context.beginPath();
    context.moveTo(MARGIN.left, at);
    context.lineTo(width - MARGIN.right, at);
    context.stroke();
    context.fillText(formatValue(tick), MARGIN.left - 6, at);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const tick of ticks(x.range, width / TICK_PX.x, false))
    context.fillText(formatValue(tick), x.toPx(tick), height - MARGIN.bottom + 6);
}

/** Draw the outline of each histogram, the newest in front. With an offset, later steps have lower baselines. */
function drawHistograms(
  context: CanvasRenderingContext2D,
  { x, y }: Axes,
  edges: readonly number[],
  { counts }: HistogramLine,
  { height, theme, mode }: PlotOptions,
): void {
  const bottom = height - MARGIN.bottom;
  const isOffset = mode === "offset";
  const spread = isOffset && counts.length > 1 ? (bottom - MARGIN.top) * OFFSET_SHARE : 0;
  const scale = isOffset && counts.length > 1 ? 1 - OFFSET_SHARE : 1;
  counts.forEach((bins, index) => {
    const age = counts.length > 1 ? 1 - index / (counts.length - 1) : 0;
    const base = bottom - spread * age;
    context.beginPath();
    context.moveTo(x.toPx(edges[0] ?? 0), base);
    bins.forEach((count, bin) => {
      const top = base - (bottom - y.toPx(count)) * scale;
      context.lineTo(x.toPx(edges[bin] ?? 0), top);
      context.lineTo(x.toPx(edges[bin + 1] ?? 0), top);
    });
    context.lineTo(x.toPx(edges.at(-1) ?? 0), base);
    if (isOffset) {
      context.globalAlpha = 0.9;
      context.fillStyle = TEXT_COLORS[theme].surface;
      context.fill();
    }
    context.globalAlpha = 1 - 0.75 * age;
    context.stroke();
  });
}

/** Draw a column per step. The largest count has the full color. */
function drawHeat(
  context: CanvasRenderingContext2D,
  { x, y }: Axes,
  edges: readonly number[],
  line: HistogramLine,
): void {
  const steps = line.step as number[];
  const largest = Math.max(...line.counts.flat(), 1e-12);
  line.counts.forEach((bins, index) => {
    const [from, to] = columnEnds(steps, index, x.range).map(x.toPx);
    bins.forEach((count, bin) => {
      const [low, high] = [y.toPx(edges[bin] ?? 0), y.toPx(edges[bin + 1] ?? 0)];
      context.globalAlpha = Math.sqrt(count / largest);
      if (count > 0) context.fillRect(from ?? 0, high, (to ?? 0) - (from ?? 0) + 0.5, low - high + 0.5);
    });
  });
}

/** Return the ends of the column of a step: halfway to its neighbors. */
export function columnEnds(
  steps: readonly number[],
  index: number,
  range: { min: number; max: number },
): [number, number] {
  const at = steps[index] ?? 0;
  const [before, after] = [steps[index - 1], steps[index + 1]];
  return [before === undefined ? range.min : (before + at) / 2, after === undefined ? range.max : (at + after) / 2];
}

/** Draw bands between pairs of quantiles, and the median. */
function drawQuantiles(context: CanvasRenderingContext2D, { x, y }: Axes, line: HistogramLine): void {
  const steps = line.step as number[];
  const curve = (quantile: number) =>
    steps.flatMap((step, index) => {
      const value = line.quantiles[index]?.[quantile];
      return value === null || value === undefined ? [] : [[x.toPx(step), y.toPx(value)] as const];
    });
  for (const band of BANDS) {
    const outline = [...curve(band), ...curve(8 - band).reverse()];
    context.globalAlpha = 0.16;
    context.beginPath();
    for (const [px, py] of outline) context.lineTo(px, py);
    context.fill();
  }
  context.globalAlpha = 1;
  context.beginPath();
  for (const [px, py] of curve(4)) context.lineTo(px, py);
  context.stroke();
}
