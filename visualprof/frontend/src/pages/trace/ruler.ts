// The time axis: ticks, markers, the measured range, and the steps below.
import type { TimelineColors } from "./colors";
import { formatDuration } from "../../lib/format";
import { tickLabel, tickStep, ticks } from "./ticks";
import type { OverlayMarks } from "./overlay";
import { timeToX, type Scene } from "./scene";
import type { TraceSource } from "./trace-source";
import { drawSteps, STEPS_PX } from "./steps";

export const AXIS_PX = 26;
const LABEL_EVERY_PX = 110;

export function gridStep(scene: { nsPerPixel: number; ratio: number }): number {
  return tickStep(scene.nsPerPixel * scene.ratio * LABEL_EVERY_PX);
}

export function drawRuler(
  context: CanvasRenderingContext2D,
  scene: Scene,
  marks: OverlayMarks,
  steps: TraceSource | null,
  ink: TimelineColors,
  selectedStep: string | null,
): void {
  const { ratio } = scene;
  const width = scene.width / ratio;
  const rulerHeight = AXIS_PX + (steps ? STEPS_PX : 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, rulerHeight);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const x = (ns: number) => timeToX(scene, ns) / ratio;
  const step = gridStep(scene);
  const end = scene.start + scene.width * scene.nsPerPixel;
  if (marks.area) {
    context.fillStyle = ink.accentSoft;
    context.fillRect(x(marks.area.start), 0, x(marks.area.end) - x(marks.area.start), AXIS_PX);
  }
  context.fillStyle = ink.line;
  for (const minor of ticks(scene.start, end, Math.max(1, step / 5)))
    context.fillRect(Math.round(x(minor)), AXIS_PX - 4, 1, 4);
  context.textAlign = "left";
  for (const tick of ticks(scene.start - step, end, step)) {
    context.fillStyle = ink.line;
    context.fillRect(Math.round(x(tick)), AXIS_PX - 10, 1, 10);
    context.fillStyle = ink.muted;
    context.fillText(tickLabel(tick, step), x(tick) + 4, AXIS_PX / 2 - 1);
  }
  if (marks.area)
    drawSpan(
      context,
      x(marks.area.start),
      x(marks.area.end),
      formatDuration(marks.area.end - marks.area.start),
      ink.accent,
      ink.ground,
      width,
    );
  drawMarkers(context, marks.markers, x, ink);
  if (steps) drawSteps(context, steps, x, width, ink, selectedStep, AXIS_PX);
}

function drawSpan(
  context: CanvasRenderingContext2D,
  x0: number,
  x1: number,
  text: string,
  color: string,
  ground: string,
  width: number,
): void {
  const y = AXIS_PX - 7;
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x0, y + 0.5);
  context.lineTo(x1, y + 0.5);
  for (const [at, direction] of [
    [x0, 1],
    [x1, -1],
  ] as const) {
    context.moveTo(at + 5 * direction, y - 2.5);
    context.lineTo(at, y + 0.5);
    context.lineTo(at + 5 * direction, y + 3.5);
  }
  context.stroke();
  const wide = context.measureText(text).width + 10;
  const middle = (Math.max(0, x0) + Math.min(width, x1)) / 2;
  const left = Math.max(2, Math.min(width - wide - 2, middle - wide / 2));
  if (x1 < 0 || x0 > width) return;
  context.fillStyle = color;
  context.fillRect(left, 3, wide, 16);
  context.fillStyle = ground;
  context.textAlign = "center";
  context.fillText(text, left + wide / 2, 11.5);
  context.textAlign = "left";
}

function drawMarkers(
  context: CanvasRenderingContext2D,
  markers: readonly number[],
  x: (ns: number) => number,
  ink: TimelineColors,
): void {
  markers.forEach((marker, index) => {
    const at = Math.round(x(marker));
    const text = String(index + 1);
    context.fillStyle = ink.mark;
    context.fillRect(at, 1, 1, AXIS_PX - 1);
    context.fillRect(at, 1, 9 + 6 * text.length, 14);
    context.fillStyle = ink.ground;
    context.fillText(text, at + 5, 8.5);
  });
}
