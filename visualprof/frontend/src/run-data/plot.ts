// The geometry of a card with scalars: its ranges, ticks, and the points next to the cursor.
import type { ScalarLine } from "../api";

export type Numbers = readonly (number | null)[];

export interface Range {
  min: number;
  max: number;
}

export interface Scale {
  range: Range;
  log: boolean;
  /** Convert a value to a pixel; NaN if it cannot be shown. */
  toPx: (value: number) => number;
  toValue: (px: number) => number;
}

const OUTLIER_SHARE = 0.05;
const PADDING = 0.05;

export const columnOf = (line: ScalarLine, name: "x" | "step" | "min" | "max" | "last" | "smoothed"): Numbers =>
  line[name] as Numbers;

function isShown(value: number | null | undefined, log: boolean): value is number {
  return value !== null && value !== undefined && Number.isFinite(value) && (!log || value > 0);
}

/** Return the range of the horizontal axis over all lines, null without points. */
export function xRange(lines: readonly ScalarLine[], log: boolean): Range | null {
  return spanOf(
    lines.flatMap((line) => [columnOf(line, "x"), line.superseded_x as Numbers]),
    log,
  );
}

function spanOf(columns: readonly Numbers[], log: boolean): Range | null {
  let [min, max] = [Infinity, -Infinity];
  for (const column of columns)
    for (const value of column) if (isShown(value, log)) [min, max] = [Math.min(min, value), Math.max(max, value)];
  return min <= max ? { min, max } : null;
}

/**
 * Return the range of the vertical axis with some room, null without values. With `clip`, it covers the values between
 * the 5th and the 95th percentile only, as TensorBoard does.
 */
export function yRange(lines: readonly ScalarLine[], { log, clip }: { log: boolean; clip: boolean }): Range | null {
  const columns = lines.flatMap((line) => [columnOf(line, "min"), columnOf(line, "max")]);
  let range = spanOf(columns, log);
  if (range && clip) {
    const sorted = columns
      .flat()
      .filter((value): value is number => isShown(value, log))
      .sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.round(share * (sorted.length - 1))] ?? 0;
    range = { min: at(OUTLIER_SHARE), max: at(1 - OUTLIER_SHARE) };
  }
  return range && widened(range, log);
}

function widened({ min, max }: Range, log: boolean): Range {
  if (log) {
    const factor = max > min ? (max / min) ** PADDING : 2;
    return { min: min / factor, max: max * factor };
  }
  const room = (max - min) * PADDING || Math.abs(max) * PADDING || 1;
  return { min: min - room, max: max + room };
}

export function createScale(range: Range, fromPx: number, toPx: number, log: boolean): Scale {
  const transform = log ? Math.log10 : (value: number) => value;
  const [low, high] = [transform(range.min), transform(range.max)];
  const factor = (toPx - fromPx) / (high - low || 1);
  return {
    range,
    log,
    toPx: (value) => fromPx + (transform(value) - low) * factor,
    toValue: (px) => {
      const value = low + (px - fromPx) / factor;
      return log ? 10 ** value : value;
    },
  };
}

/** Return round positions on an axis, at most about `count`. */
export function ticks({ min, max }: Range, count: number, log: boolean): number[] {
  if (log && max / min >= 100) {
    const powers: number[] = [];
    for (let power = Math.ceil(Math.log10(min)); power <= Math.log10(max); power += 1) powers.push(10 ** power);
    const every = Math.ceil(powers.length / Math.max(count, 1));
    return powers.filter((_, index) => index % every === 0);
  }
  const rough = (max - min) / Math.max(count, 1);
  if (!(rough > 0)) return [min];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const found: number[] = [];
  for (let index = Math.ceil(min / step); index * step <= max; index += 1) found.push(index * step);
  return found;
}

/** Return the index of the point nearest to a position, -1 without points. `x` is ascending. */
export function nearest(x: Numbers, position: number): number {
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) <= position) low = middle;
    else high = middle;
  }
  if (x.length === 0) return -1;
  return Math.abs((x[high] ?? Infinity) - position) < Math.abs((x[low] ?? Infinity) - position) ? high : low;
}
