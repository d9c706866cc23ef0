// Draws trials on a canvas: as lines over parallel axes, and as points of two axes.
import { TEXT_COLORS, categoryColor } from "../../charts/palette";
import { hex, mixColors, rgb, type ThemeName } from "../../lib/color";
import { shorten } from "../../lib/text";
import { formatValue } from "../../run-data/positions";
import { positionOn, rangeOf, type Axis, type Filters, type Trial } from "./trials";

export interface Drawing {
  width: number;
  height: number;
  theme: ThemeName;
  /** Color of each trial that passes the filters; other trials are faint. */
  colors: ReadonlyMap<string, string>;
  highlighted: string | null;
}

export const PARALLEL_MARGIN = { left: 60, right: 60, top: 34, bottom: 30 };
const SCATTER_MARGIN = { left: 58, right: 8, top: 6, bottom: 20 };
/** Distance of unknown values below the axis. */
const RAIL_PX = 16;
const BRUSH_PX = 10;
const NAME_LENGTH = 18;
const MAX_CHOICES = 12;
const FAINT = 0.12;

/** Return the color of a share of the range of a metric: 1 is best. */
export function goalColor(share: number | null, theme: ThemeName): string {
  if (share === null) return categoryColor("other", theme);
  return hex(mixColors(rgb(categoryColor("memcpy", theme)), rgb(categoryColor("kernel", theme)), share));
}

/** Return the horizontal position of each axis. */
export function axisPositions(count: number, width: number): number[] {
  const { left, right } = PARALLEL_MARGIN;
  const room = width - left - right;
  return Array.from({ length: count }, (_, index) => left + (count > 1 ? (room * index) / (count - 1) : room / 2));
}

function bounds(height: number): { top: number; bottom: number } {
  return { top: PARALLEL_MARGIN.top, bottom: height - PARALLEL_MARGIN.bottom };
}

/** Return the position on an axis, 0 to 1, of a vertical pixel. */
export function positionAt(y: number, height: number): number {
  const { top, bottom } = bounds(height);
  return (bottom - y) / (bottom - top);
}

function heightOf(axis: Axis, trial: Trial, height: number): number {
  const { top, bottom } = bounds(height);
  const position = positionOn(axis, trial.values.get(axis.id) ?? null);
  return position === null ? bottom + RAIL_PX : bottom - position * (bottom - top);
}

/** Return the trial whose line is nearest to a point, null if all are more than `reach` pixels away. */
export function nearestTrial(
  trials: readonly Trial[],
  axes: readonly Axis[],
  { width, height }: Pick<Drawing, "width" | "height">,
  point: { x: number; y: number },
  reach = 8,
): string | null {
  const at = axisPositions(axes.length, width);
  const right = Math.max(
    1,
    at.findIndex((x) => x >= point.x),
  );
  const [first, second] = [axes[right - 1], axes[right]];
  if (!first || !second) return null;
  const share = (point.x - (at[right - 1] ?? 0)) / ((at[right] ?? 1) - (at[right - 1] ?? 0));
  let [nearest, distance]: [string | null, number] = [null, reach];
  for (const trial of trials) {
    const y = heightOf(first, trial, height) * (1 - share) + heightOf(second, trial, height) * share;
    if (Math.abs(y - point.y) < distance) [nearest, distance] = [trial.name, Math.abs(y - point.y)];
  }
  return nearest;
}

export function paintParallel(
  context: CanvasRenderingContext2D,
  trials: readonly Trial[],
  axes: readonly Axis[],
  filters: Filters,
  drawing: Drawing,
): void {
  const { width, height, theme, colors, highlighted } = drawing;
  const at = axisPositions(axes.length, width);
  const stroke = (trial: Trial, color: string, alpha: number, lineWidth: number) => {
    context.strokeStyle = color;
    context.globalAlpha = alpha;
    context.lineWidth = lineWidth;
    context.beginPath();
    axes.forEach((axis, index) => context.lineTo(at[index] ?? 0, heightOf(axis, trial, height)));
    context.stroke();
  };
  context.clearRect(0, 0, width, height);
  context.lineJoin = "round";
  for (const trial of trials) if (!colors.has(trial.name)) stroke(trial, TEXT_COLORS[theme].muted, FAINT, 1);
  for (const trial of trials) {
    const color = colors.get(trial.name);
    if (color) stroke(trial, color, 0.8, 1.4);
  }
  const picked = trials.find((trial) => trial.name === highlighted);
  if (picked) stroke(picked, TEXT_COLORS[theme].text, 1, 2.6);
  context.globalAlpha = 1;
  axes.forEach((axis, index) => drawAxis(context, axis, filters, at[index] ?? 0, drawing));
}

function drawAxis(
  context: CanvasRenderingContext2D,
  axis: Axis,
  filters: Filters,
  x: number,
  { height, theme }: Drawing,
): void {
  const ink = TEXT_COLORS[theme];
  const { top, bottom } = bounds(height);
  const toPx = (position: number) => bottom - position * (bottom - top);
  context.strokeStyle = ink.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, bottom);
  context.stroke();
  const filter = filters[axis.id];
  if (filter) {
    const [low, high] = rangeOf(axis, filter);
    context.globalAlpha = 0.3;
    context.fillStyle = categoryColor("kernel", theme);
    context.fillRect(x - BRUSH_PX / 2, toPx(high), BRUSH_PX, Math.max(3, toPx(low) - toPx(high)));
    context.globalAlpha = 1;
  }
  context.font = "600 12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.fillStyle = ink.text;
  context.fillText(shorten(axis.name, NAME_LENGTH), x, top - 16);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = ink.muted;
  const label = (text: string, y: number) => {
    context.lineWidth = 3;
    context.strokeStyle = ink.surface;
    context.strokeText(text, x + 7, y);
    context.fillText(text, x + 7, y);
  };
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const [text, position] of labelsOf(axis)) label(text, toPx(position));
}

/** Return the texts next to an axis and their positions. */
function labelsOf(axis: Axis): [string, number][] {
  const { choices } = axis;
  if (choices) {
    const every = Math.ceil(choices.length / MAX_CHOICES);
    return choices
      .map((text, index): [string, number] => [shorten(text, NAME_LENGTH), (index + 0.5) / choices.length])
      .filter((_, index) => index % every === 0);
  }
  if (axis.min > axis.max) return [];
  const middle = axis.log ? Math.sqrt(axis.min * axis.max) : (axis.min + axis.max) / 2;
  const values = axis.min === axis.max ? [axis.min] : [axis.min, middle, axis.max];
  return values.map((value) => [formatValue(value), positionOn(axis, value) ?? 0]);
}

/** Return the pixel of a trial in a scatter plot, null if a value is unknown. */
export function scatterPoint(
  trial: Trial,
  [x, y]: readonly [Axis, Axis],
  { width, height }: Pick<Drawing, "width" | "height">,
): { x: number; y: number } | null {
  const { left, right, top, bottom } = SCATTER_MARGIN;
  const across = positionOn(x, trial.values.get(x.id) ?? null);
  const up = positionOn(y, trial.values.get(y.id) ?? null);
  if (across === null || up === null) return null;
  const inset = 8; // so that points at the ends are whole
  return {
    x: left + inset + across * (width - left - right - 2 * inset),
    y: height - bottom - inset - up * (height - top - bottom - 2 * inset),
  };
}

export function paintScatter(
  context: CanvasRenderingContext2D,
  trials: readonly Trial[],
  axes: readonly [Axis, Axis],
  drawing: Drawing,
): void {
  const { width, height, theme, colors, highlighted } = drawing;
  const ink = TEXT_COLORS[theme];
  const { left, right, top, bottom } = SCATTER_MARGIN;
  context.clearRect(0, 0, width, height);
  context.strokeStyle = ink.line;
  context.strokeRect(left + 0.5, top + 0.5, width - left - right, height - top - bottom);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = ink.muted;
  const inset = 8;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const [text, position] of labelsOf(axes[1]))
    context.fillText(text, left - 5, height - bottom - inset - position * (height - top - bottom - 2 * inset));
  context.textBaseline = "top";
  const across = labelsOf(axes[0]);
  across.forEach(([text, position], index) => {
    context.textAlign = axes[0].choices
      ? "center"
      : index === 0 && across.length > 1
        ? "left"
        : index === 2
          ? "right"
          : "center";
    context.fillText(text, left + inset + position * (width - left - right - 2 * inset), height - bottom + 5);
  });
  const dot = (trial: Trial, color: string, radius: number, alpha: number) => {
    const point = scatterPoint(trial, axes, drawing);
    if (!point) return;
    context.globalAlpha = alpha;
    context.fillStyle = color;
    context.beginPath();
    context.arc(point.x, point.y, radius, 0, 2 * Math.PI);
    context.fill();
  };
  for (const trial of trials) if (!colors.has(trial.name)) dot(trial, ink.muted, 2.5, FAINT);
  for (const trial of trials) {
    const color = colors.get(trial.name);
    if (color) dot(trial, color, 3.5, 0.85);
  }
  const picked = trials.find((trial) => trial.name === highlighted);
  if (picked) dot(picked, ink.text, 5.5, 1);
  context.globalAlpha = 1;
}
