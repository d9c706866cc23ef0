// Draws the lines of a card on a canvas.
import type { ScalarLine } from "../../api";
import { categoryColor, TEXT_COLORS } from "../../charts/palette";
import type { ThemeName } from "../../lib/color";
import type { Band } from "../../run-data/bands";
import { columnOf, createScale, ticks, type Numbers, type Range, type Scale } from "../../run-data/plot";

export interface ColoredLine {
  line: ScalarLine;
  color: string;
  /** Whether the line has the axis on the right. */
  right?: boolean;
}

/** A range of the horizontal axis that was recorded. */
export interface Interval {
  from: number;
  to: number;
}

export interface PlotOptions {
  width: number;
  height: number;
  theme: ThemeName;
  x: Range;
  y: Range;
  /** Range of the axis on the right, null without one. */
  right: Range | null;
  logX: boolean;
  logY: boolean;
  smoothed: boolean;
  bands: readonly Band[];
  recorded: readonly Interval[];
  formatX: (value: number) => string;
  formatY: (value: number) => string;
}

export interface Plot {
  x: Scale;
  y: Scale;
  right: Scale | null;
}

export const MARGIN = { left: 54, right: 12, top: 8, bottom: 22 };
const RIGHT_AXIS_PX = 54;
const TICK_PX = { x: 60, y: 32 };
const TICK_GAP_PX = 12;
const FAINT = 0.28;
const MARK_PX = 4;
const BAND_ALPHA = 0.2;
const MIN_RECORDED_PX = 3;

/** Return the room next to the chart for the axis on the right. */
export const rightMargin = (right: unknown): number => (right ? RIGHT_AXIS_PX : MARGIN.right);

export function createPlot({ width, height, x, y, right, logX, logY }: PlotOptions): Plot {
  return {
    x: createScale(x, MARGIN.left, width - rightMargin(right), logX),
    y: createScale(y, height - MARGIN.bottom, MARGIN.top, logY),
    right: right && createScale(right, height - MARGIN.bottom, MARGIN.top, logY),
  };
}

/** Return the plot with the vertical axis of a line. */
const axesOf = (plot: Plot, { right }: ColoredLine): Plot => (right && plot.right ? { ...plot, y: plot.right } : plot);

export function paint(context: CanvasRenderingContext2D, lines: readonly ColoredLine[], options: PlotOptions): Plot {
  const plot = createPlot(options);
  const { width, height } = options;
  context.clearRect(0, 0, width, height);
  drawAxes(context, plot, options);
  context.save();
  context.beginPath();
  context.rect(
    MARGIN.left,
    MARGIN.top,
    width - MARGIN.left - rightMargin(options.right),
    height - MARGIN.top - MARGIN.bottom,
  );
  context.clip();
  context.lineJoin = "round";
  drawRecorded(context, plot, options);
  const banded = new Set(options.bands.map(({ color }) => color));
  for (const colored of lines)
    if (!banded.has(colored.color)) drawLine(context, axesOf(plot, colored), colored.line, colored.color, options);
  for (const band of options.bands) drawBand(context, plot, band);
  context.restore();
  return plot;
}

function drawAxes(context: CanvasRenderingContext2D, plot: Plot, options: PlotOptions): void {
  const ink = TEXT_COLORS[options.theme];
  const { width, height } = options;
  const end = width - rightMargin(options.right);
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = ink.line;
  context.fillStyle = ink.muted;
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const tick of ticks(options.y, (height - MARGIN.top - MARGIN.bottom) / TICK_PX.y, options.logY)) {
    const y = Math.round(plot.y.toPx(tick)) + 0.5;
    context.beginPath();
    context.moveTo(MARGIN.left, y);
    context.lineTo(end, y);
    context.stroke();
    context.fillText(options.formatY(tick), MARGIN.left - 6, y);
  }
  context.textAlign = "left";
  for (const tick of options.right ? ticks(options.right, height / TICK_PX.y, options.logY) : [])
    context.fillText(options.formatY(tick), end + 6, plot.right?.toPx(tick) ?? 0);
  context.textBaseline = "top";
  context.textAlign = "center";
  const tickPx = Math.max(TICK_PX.x, context.measureText(options.formatX(options.x.max)).width + TICK_GAP_PX);
  for (const tick of ticks(options.x, (end - MARGIN.left) / tickPx, options.logX)) {
    const x = plot.x.toPx(tick);
    const half = context.measureText(options.formatX(tick)).width / 2;
    context.fillText(
      options.formatX(tick),
      Math.min(x, (options.right ? end : width) - half - 2),
      height - MARGIN.bottom + 6,
    );
  }
}

/** Return the pixels of a recorded range, which is visible even if it is narrow. */
export function recordedPx({ x }: Plot, { from, to }: Interval): { left: number; width: number } {
  const [left, right] = [x.toPx(from), x.toPx(to)];
  const width = Math.max(MIN_RECORDED_PX, right - left);
  return { left: left - (width - (right - left)) / 2, width };
}

function drawRecorded(context: CanvasRenderingContext2D, plot: Plot, { recorded, height, theme }: PlotOptions): void {
  context.fillStyle = categoryColor("annotation", theme);
  context.globalAlpha = BAND_ALPHA;
  for (const interval of recorded) {
    const { left, width } = recordedPx(plot, interval);
    context.fillRect(left, MARGIN.top, width, height - MARGIN.top - MARGIN.bottom);
  }
  context.globalAlpha = 1;
}

function drawBand(context: CanvasRenderingContext2D, plot: Plot, { color, x, low, mean, high }: Band): void {
  const toPx = (value: number) => plot.y.toPx(plot.y.log ? Math.max(value, plot.y.range.min) : value);
  context.fillStyle = context.strokeStyle = color;
  context.globalAlpha = BAND_ALPHA;
  context.beginPath();
  x.forEach((position, index) => context.lineTo(plot.x.toPx(position), toPx(high[index] ?? 0)));
  for (let index = x.length - 1; index >= 0; index -= 1)
    context.lineTo(plot.x.toPx(x[index] ?? 0), toPx(low[index] ?? 0));
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = 1.8;
  strokePath(context, plot, x, mean);
}

function drawLine(
  context: CanvasRenderingContext2D,
  plot: Plot,
  line: ScalarLine,
  color: string,
  options: PlotOptions,
): void {
  const x = columnOf(line, "x");
  context.strokeStyle = context.fillStyle = color;
  context.globalAlpha = FAINT;
  context.lineWidth = 1.2;
  context.setLineDash([3, 3]);
  strokePath(context, plot, line.superseded_x as Numbers, line.superseded as Numbers);
  context.setLineDash([]);
  drawExtremes(context, plot, line);
  if (options.smoothed) strokePath(context, plot, x, columnOf(line, "last"));
  context.globalAlpha = 1;
  context.lineWidth = 1.6;
  strokePath(context, plot, x, columnOf(line, options.smoothed ? "smoothed" : "last"));
  drawMarks(context, plot, line);
}

/** Draw the smallest and largest value of each bucket, so that no spike is lost. */
function drawExtremes(context: CanvasRenderingContext2D, plot: Plot, line: ScalarLine): void {
  const [x, min, max] = [columnOf(line, "x"), columnOf(line, "min"), columnOf(line, "max")];
  context.beginPath();
  x.forEach((position, index) => {
    const [low, high] = [min[index], max[index]];
    if (position === null || low == null || high == null || low === high) return;
    const px = plot.x.toPx(position);
    context.moveTo(px, plot.y.toPx(plot.y.log ? Math.max(low, plot.y.range.min) : low));
    context.lineTo(px, plot.y.toPx(high));
  });
  context.stroke();
}

function strokePath(context: CanvasRenderingContext2D, plot: Plot, x: Numbers, y: Numbers): void {
  let isOpen = false;
  let single: [number, number] | null = null;
  context.beginPath();
  for (let index = 0; index <= x.length; index += 1) {
    const [position, value] = [x[index], y[index]];
    const px = position == null ? Number.NaN : plot.x.toPx(position);
    const py = value == null ? Number.NaN : plot.y.toPx(value);
    if (Number.isFinite(px) && Number.isFinite(py)) {
      if (isOpen) context.lineTo(px, py);
      else context.moveTo(px, py);
      single = isOpen ? null : [px, py];
      isOpen = true;
    } else {
      if (single) context.rect(single[0] - 1, single[1] - 1, 2, 2); // a point between gaps
      [isOpen, single] = [false, null];
    }
  }
  context.stroke();
}

/** Mark values that are not finite: at the top for infinity, else at the bottom. */
function drawMarks(context: CanvasRenderingContext2D, plot: Plot, line: ScalarLine): void {
  const top = plot.y.toPx(plot.y.range.max);
  const bottom = plot.y.toPx(plot.y.range.min);
  line.marks.x.forEach((position, index) => {
    if (position === null) return;
    const px = plot.x.toPx(position);
    const [tip, base] = line.marks.value[index] === "inf" ? [top, top + 2 * MARK_PX] : [bottom, bottom - 2 * MARK_PX];
    context.beginPath();
    context.moveTo(px, tip);
    context.lineTo(px - MARK_PX, base);
    context.lineTo(px + MARK_PX, base);
    context.closePath();
    if (line.marks.value[index] === "nan") context.stroke();
    else context.fill();
  });
}
