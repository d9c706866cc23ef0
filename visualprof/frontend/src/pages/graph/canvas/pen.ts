// What painting needs of a canvas; the SVG writer offers the same, so screen, PNG and SVG are one code.

export type Pen = Pick<
  CanvasRenderingContext2D,
  "fillStyle" | "strokeStyle" | "lineWidth" | "font" | "textAlign" | "textBaseline" | "globalAlpha" | "beginPath" | "moveTo" | "lineTo" | "bezierCurveTo" | "closePath" | "roundRect" | "rect" | "fill" | "stroke" | "fillText" | "fillRect" | "setLineDash"
>;

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif';

export function font(size: number, weight = 400): string {
  return `${weight} ${size}px ${FONT}`;
}
