// Draws the points of an embedding on a canvas.
import { TEXT_COLORS } from "../../charts/palette";
import type { ThemeName } from "../../lib/color";
import { shorten } from "../../lib/text";
import type { ScreenPoints, Size } from "./points";

export interface Drawing extends Size {
  theme: ThemeName;
  colors: readonly string[];
  /** Text of a point. */
  label: (point: number) => string;
  /** Points that match the search, null without a search. */
  matches: ReadonlySet<number> | null;
  picked: number | null;
  neighbors: readonly number[];
  hovered: number | null;
  sprite: Sprite | null;
}

/** The pictures of all points in one image, row by row. */
export interface Sprite {
  image: ImageBitmap;
  width: number;
  height: number;
}

const RADIUS_PX = 2.6;
const MAX_LABELS = 40;
const LABEL_LENGTH = 28;
const FAINT = 0.15;
const MIN_SPRITE_PX = 16;
const LABEL_GAP_PX = 10;
const LABEL_HEIGHT_PX = 15;

export function paint(context: CanvasRenderingContext2D, points: ScreenPoints, drawing: Drawing): void {
  const { width, height, matches, colors, sprite } = drawing;
  context.clearRect(0, 0, width, height);
  for (const point of points.order) {
    context.globalAlpha = matches && !matches.has(point) ? FAINT : sprite ? 1 : 0.8;
    if (sprite) drawPicture(context, points, point, sprite);
    else drawDot(context, points, point, colors[point] ?? "#888", RADIUS_PX);
  }
  context.globalAlpha = 1;
  drawMarks(context, points, drawing);
}

function drawDot(
  context: CanvasRenderingContext2D,
  points: ScreenPoints,
  point: number,
  color: string,
  radius: number,
) {
  const size = radius * (points.scale[point] ?? 1);
  context.fillStyle = color;
  context.beginPath();
  context.arc(points.x[point] ?? 0, points.y[point] ?? 0, size, 0, 2 * Math.PI);
  context.fill();
}

function drawPicture(context: CanvasRenderingContext2D, points: ScreenPoints, point: number, sprite: Sprite): void {
  const { image, width, height } = sprite;
  const perRow = Math.max(1, Math.floor(image.width / width));
  const factor = Math.max(1, MIN_SPRITE_PX / Math.max(width, height)) * (points.scale[point] ?? 1);
  const [shownWidth, shownHeight] = [width * factor, height * factor];
  context.drawImage(
    image,
    (point % perRow) * width,
    Math.floor(point / perRow) * height,
    width,
    height,
    (points.x[point] ?? 0) - shownWidth / 2,
    (points.y[point] ?? 0) - shownHeight / 2,
    shownWidth,
    shownHeight,
  );
}

/** Draw rings around chosen points, and the labels that have room. */
function drawMarks(context: CanvasRenderingContext2D, points: ScreenPoints, drawing: Drawing): void {
  const { matches, picked, neighbors, hovered, theme, label, width } = drawing;
  const ink = TEXT_COLORS[theme];
  const ring = (point: number, radius: number) => {
    context.beginPath();
    context.arc(points.x[point] ?? 0, points.y[point] ?? 0, radius, 0, 2 * Math.PI);
    context.stroke();
  };
  context.strokeStyle = ink.text;
  context.lineWidth = 1.2;
  for (const point of neighbors) ring(point, 5);
  context.lineWidth = 2.2;
  if (picked !== null) ring(picked, 7);
  const matching = matches && matches.size <= MAX_LABELS ? [...matches] : [];
  const named = [hovered, picked].filter((point) => point !== null);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.lineWidth = 3;
  context.strokeStyle = ink.surface;
  context.fillStyle = ink.text;
  const taken: { left: number; y: number; width: number }[] = [];
  for (const point of new Set([...named, ...neighbors, ...matching])) {
    const [x, y] = [points.x[point] ?? Number.NaN, points.y[point] ?? Number.NaN];
    const text = shorten(label(point), LABEL_LENGTH);
    if (!Number.isFinite(x) || !text) continue;
    const textWidth = context.measureText(text).width;
    const left = x > width * 0.75 ? x - LABEL_GAP_PX - textWidth : x + LABEL_GAP_PX;
    const overlaps = taken.some(
      (other) =>
        left < other.left + other.width && other.left < left + textWidth && Math.abs(other.y - y) < LABEL_HEIGHT_PX,
    );
    if (overlaps) continue;
    taken.push({ left, y, width: textWidth });
    context.strokeText(text, left, y);
    context.fillText(text, left, y);
  }
}
