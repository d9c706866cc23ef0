// A curve from a cause to its effect.
import type { Surface } from "./surface";

/** In CSS pixels of the page; nothing is drawn above `top`. */
export interface Box {
  x0: number;
  x1: number;
  y: number;
  height: number;
  top: number;
}

export function drawArrow({ context, colors: ink }: Surface, from: Box, to: Box): void {
  // It starts at the end of the first box, unless the second one starts earlier.
  const x0 = Math.max(from.x0, Math.min(from.x1, to.x0));
  const [y0, y1] = [from.y + from.height / 2, to.y + to.height / 2];
  const bend = Math.min(120, 24 + Math.abs(to.x0 - x0) / 2 + Math.abs(y1 - y0) / 8);
  context.strokeStyle = ink.accent;
  context.fillStyle = ink.accent;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, to.x0 - bend, y1, to.x0 - 4, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(to.x0, y1);
  context.lineTo(to.x0 - 7, y1 - 4);
  context.lineTo(to.x0 - 7, y1 + 4);
  context.fill();
}
