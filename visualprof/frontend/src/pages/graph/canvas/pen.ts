// The canvas methods that painting needs. The SVG writer implements the same, so that screen, PNG and SVG share the
// code.
import type { Box } from "./camera";

export type Pen = Pick<
  CanvasRenderingContext2D,
  | "fillStyle"
  | "strokeStyle"
  | "lineWidth"
  | "font"
  | "textAlign"
  | "textBaseline"
  | "globalAlpha"
  | "beginPath"
  | "moveTo"
  | "lineTo"
  | "bezierCurveTo"
  | "closePath"
  | "roundRect"
  | "rect"
  | "fill"
  | "stroke"
  | "fillText"
  | "fillRect"
  | "setLineDash"
>;

export const FONT =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif';

export function font(size: number, weight = 400): string {
  return `${weight} ${size}px ${FONT}`;
}

/** Draw a box with round corners, filled and outlined if the colors are given. */
export function roundBox(
  pen: Pen,
  { x, y, w, h }: Box,
  radius: number | number[],
  fill: string | null,
  stroke: string | null = null,
  width = 1,
): void {
  pen.beginPath();
  pen.roundRect(x, y, w, h, radius);
  if (fill !== null) {
    pen.fillStyle = fill;
    pen.fill();
  }
  if (stroke === null) return;
  pen.strokeStyle = stroke;
  pen.lineWidth = width;
  pen.stroke();
}
