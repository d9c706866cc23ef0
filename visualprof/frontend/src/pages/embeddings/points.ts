// The points of an embedding on the screen: their positions, colors, and the point at the pointer.
import { seriesColors, categoryColor } from "../../charts/palette";
import { hex, mixColors, rgb, type ThemeName } from "../../lib/color";

export interface Camera {
  /** Angles in radians; only used with three dimensions. */
  yaw: number;
  pitch: number;
  zoom: number;
  /** Shift in pixels. */
  x: number;
  y: number;
}

export interface Size {
  width: number;
  height: number;
}

/** Points on the screen. */
export interface ScreenPoints {
  /** Pixels, NaN for points without a position. */
  x: Float32Array;
  y: Float32Array;
  /** Indexes of the points with a position, the farthest first. */
  order: Uint32Array;
  /** Size per point relative to a point in the middle. */
  scale: Float32Array;
}

export const START: Camera = { yaw: 0.6, pitch: 0.35, zoom: 1, x: 0, y: 0 };
const FILL = 0.44; // of the smaller side
const PERSPECTIVE = 0.3;

type Column = readonly (number | null)[];

/** Return coordinates around 0, at most 1 away; axes keep their proportions. */
export function normalize(axes: readonly Column[]): Float32Array[] {
  const ranges = axes.map((axis) => {
    let [min, max] = [Infinity, -Infinity];
    for (const value of axis) if (value !== null) [min, max] = [Math.min(min, value), Math.max(max, value)];
    return { middle: (min + max) / 2, half: (max - min) / 2 };
  });
  const half = Math.max(...ranges.map((range) => range.half), 1e-12);
  return axes.map((axis, index) => {
    const { middle } = ranges[index] ?? { middle: 0 };
    return Float32Array.from(axis, (value) => (value === null ? Number.NaN : (value - middle) / half));
  });
}

/** Return where points are on the screen. */
export function placePoints(points: readonly Float32Array[], camera: Camera, size: Size): ScreenPoints {
  const [px = new Float32Array(), py = px, pz] = points;
  const count = px.length;
  const [x, y, scale, depth] = [0, 1, 2, 3].map(() => new Float32Array(count)) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const unit = Math.min(size.width, size.height) * FILL * camera.zoom;
  const [sinYaw, cosYaw, sinPitch, cosPitch] = [
    Math.sin(camera.yaw),
    Math.cos(camera.yaw),
    Math.sin(camera.pitch),
    Math.cos(camera.pitch),
  ];
  for (let i = 0; i < count; i += 1) {
    let [across, up, near] = [px[i] ?? 0, py[i] ?? 0, 0];
    if (pz) {
      const away = pz[i] ?? 0;
      const turned = away * cosYaw - across * sinYaw;
      across = across * cosYaw + away * sinYaw;
      near = turned * cosPitch - up * sinPitch;
      up = up * cosPitch + turned * sinPitch;
    }
    const nearness = pz ? 1 / (1 - near * PERSPECTIVE) : 1;
    x[i] = size.width / 2 + camera.x + across * unit * nearness;
    y[i] = size.height / 2 + camera.y - up * unit * nearness;
    scale[i] = nearness;
    depth[i] = near;
  }
  const placed = Uint32Array.from({ length: count }, (_, i) => i).filter((i) => Number.isFinite(x[i]));
  return { x, y, scale, order: pz ? placed.sort((a, b) => (depth[a] ?? 0) - (depth[b] ?? 0)) : placed };
}

/** Return the nearest point within `reach` pixels, null without any. */
export function pointAt({ x, y, order }: ScreenPoints, at: { x: number; y: number }, reach = 10): number | null {
  let [nearest, distance]: [number | null, number] = [null, reach];
  for (const i of order) {
    const far = Math.hypot((x[i] ?? 0) - at.x, (y[i] ?? 0) - at.y);
    if (far <= distance) [nearest, distance] = [i, far];
  }
  return nearest;
}

export interface Coloring {
  /** Color of each point. */
  colors: readonly string[];
  legend: readonly { text: string; color: string }[];
}

/** Return colors by a label: a scale for many numbers, else a color for each of the most frequent labels. */
export function colorPoints(labels: readonly string[] | null, count: number, theme: ThemeName): Coloring {
  const palette = seriesColors(theme);
  if (!labels) return { colors: new Array<string>(count).fill(palette[0] ?? "#888"), legend: [] };
  const numbers = labels.map((label) => (label.trim() === "" ? Number.NaN : Number(label)));
  const distinct = new Map<string, number>();
  for (const label of labels) distinct.set(label, (distinct.get(label) ?? 0) + 1);
  if (distinct.size > palette.length && numbers.every(Number.isFinite)) return colorNumbers(labels, numbers, theme);
  const frequent = [...distinct].sort((a, b) => b[1] - a[1]).slice(0, palette.length);
  const other = categoryColor("other", theme);
  const byLabel = new Map(
    frequent
      .map(([label]) => label)
      .sort(new Intl.Collator("en", { numeric: true }).compare)
      .map((label, index) => [label, palette[index] ?? other]),
  );
  return {
    colors: labels.map((label) => byLabel.get(label) ?? other),
    legend: [...byLabel].map(([text, color]) => ({ text, color })),
  };
}

function colorNumbers(labels: readonly string[], numbers: readonly number[], theme: ThemeName): Coloring {
  const low = numbers.reduce((a, b) => Math.min(a, b), Infinity);
  const high = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  const [from, to] = [rgb(categoryColor("kernel", theme)), rgb(categoryColor("memcpy", theme))];
  const color = (value: number) => hex(mixColors(from, to, high > low ? (value - low) / (high - low) : 0));
  const textOf = (value: number) => labels[numbers.indexOf(value)] ?? "";
  return {
    colors: numbers.map(color),
    legend: [low, high].map((value) => ({ text: textOf(value), color: color(value) })),
  };
}
