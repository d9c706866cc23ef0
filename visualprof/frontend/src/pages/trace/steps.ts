// The steps of a run as labeled boxes: below the time axis, and in the head of the base.
import type { TimelineColors } from "./colors";
import type { TraceSource } from "./trace-source";

export const STEPS_PX = 20;

export function drawSteps(
  context: CanvasRenderingContext2D,
  source: TraceSource,
  x: (ns: number) => number,
  width: number,
  ink: TimelineColors,
  selected: string | null,
  top: number,
): void {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.lineWidth = 1;
  for (const { name, start_ns, duration_ns } of source.meta.steps) {
    const x0 = x(start_ns + source.offset);
    const x1 = x(start_ns + duration_ns + source.offset);
    if (x1 < 0 || x0 > width || x1 - x0 < 0.5) continue;
    context.fillStyle = name === selected ? ink.accentSoft : ink.head;
    context.fillRect(x0 + 0.5, top + 1, Math.max(1, x1 - x0 - 1), STEPS_PX - 3);
    context.strokeStyle = name === selected ? ink.accent : ink.line;
    context.strokeRect(Math.round(x0) + 0.5, top + 1.5, Math.max(1, Math.round(x1 - x0) - 1), STEPS_PX - 4);
    const room = Math.min(width, x1) - Math.max(0, x0);
    if (room < context.measureText(name).width + 8) continue;
    context.fillStyle = name === selected ? ink.accent : ink.muted;
    context.fillText(name, (Math.max(0, x0) + Math.min(width, x1)) / 2, top + STEPS_PX / 2);
  }
}
