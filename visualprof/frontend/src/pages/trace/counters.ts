// A counter as a stepped area. If a pixel has several samples, the band between minimum and maximum.
import { formatBytes, formatSignificant, withMinusSign } from "../../lib/format";
import type { TimelineColors } from "./colors";
import { t } from "../../locales";
import type { Scene, SceneRow } from "./scene";

const TOP_PX = 4;
const BOTTOM_PX = 3;

interface Sample {
  x: number;
  low: number;
  high: number;
  last: number;
}

/** Return the samples in order of x (CSS pixels), starting with the value before the window. */
export function visibleSamples(scene: Scene, { counters }: SceneRow): Sample[] {
  const out: Sample[] = [];
  for (const { tile, scale, offset, clip0, clip1 } of counters) {
    if (!Number.isNaN(tile.before) && out.length === 0)
      out.push({ x: clip0 / scene.ratio, low: tile.before, high: tile.before, last: tile.before });
    for (let i = 0; i < tile.bucket.length; i += 1) {
      const x = Math.floor((tile.bucket[i] ?? 0) * scale + offset);
      const last = tile.last[i] ?? 0;
      const before = out[out.length - 1];
      // The rest of the window still shows its initial value.
      if (x < clip0) out.splice(0, out.length, { x: clip0 / scene.ratio, low: last, high: last, last });
      else if (x < clip1) {
        const low = tile.low[i] ?? last;
        const high = tile.high[i] ?? last;
        if (before && before.x * scene.ratio === x)
          Object.assign(before, { low: Math.min(before.low, low), high: Math.max(before.high, high), last });
        else out.push({ x: x / scene.ratio, low, high, last });
      }
    }
  }
  return out;
}

export function counterValue(samples: readonly Sample[], x: number): Sample | null {
  return samples.findLast((sample) => sample.x <= x) ?? null;
}

// Counters have no unit; memory counters are in bytes in all formats.
const BYTES = /memory|_mem\b|bytes/i;

export function counterText(value: number, name: string): string {
  if (BYTES.test(name)) return formatBytes(value);
  if (Math.abs(value) < 1e4) return Number.isInteger(value) ? withMinusSign(String(value)) : formatSignificant(value);
  const power = Math.min(4, Math.floor(Math.log10(Math.abs(value)) / 3));
  return `${formatSignificant(value / 1000 ** power)}\u00a0${["", "k", "M", "G", "T"][power] ?? ""}`;
}

export function drawCounter(
  context: CanvasRenderingContext2D,
  scene: Scene,
  line: SceneRow,
  color: string,
  ink: TimelineColors,
): void {
  const counter = line.row.item?.counter;
  if (!counter) return;
  const samples = visibleSamples(scene, line);
  const right = scene.width / scene.ratio;
  const floor = Math.min(0, counter.min);
  const range = Math.max(counter.max - floor, Number.MIN_VALUE);
  const plotHeight = line.row.height - TOP_PX - BOTTOM_PX;
  const base = line.y + line.row.height - BOTTOM_PX;
  const y = (value: number) => base - ((value - floor) / range) * plotHeight;

  context.save();
  context.beginPath();
  context.rect(0, line.top, right, scene.height / scene.ratio);
  context.clip();
  context.fillStyle = color;
  context.strokeStyle = color;
  context.lineWidth = 1;
  const area = new Path2D();
  const stroke = new Path2D();
  samples.forEach((sample, index) => {
    const next = samples[index + 1]?.x ?? right;
    area.rect(sample.x, y(sample.last), Math.max(next - sample.x, 0.5), base - y(sample.last));
    if (index === 0) stroke.moveTo(sample.x, y(sample.last));
    if (sample.high > sample.low) {
      stroke.moveTo(sample.x + 0.5, y(sample.low));
      stroke.lineTo(sample.x + 0.5, y(sample.high));
      stroke.moveTo(sample.x, y(sample.last));
    }
    stroke.lineTo(sample.x, y(sample.last));
    stroke.lineTo(next, y(sample.last));
  });
  context.globalAlpha = 0.22;
  context.fill(area);
  context.globalAlpha = 0.9;
  context.stroke(stroke);
  context.globalAlpha = 1;
  if (!line.row.folded) {
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillStyle = ink.muted;
    const peak = t("timeline.peak", { value: counterText(counter.max, counter.name) });
    context.fillText(peak, right - 5, line.y + TOP_PX);
  }
  context.restore();
}
