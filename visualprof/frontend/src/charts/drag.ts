// Dragging over a chart marks a range of its x axis.
import type { EChartsType } from "./engine";

const LEAST_PX = 6;

interface Pointer {
  offsetX: number;
  offsetY: number;
}

/** Calls back with the two x values between which the pointer was dragged, the smaller one first. */
export async function listen_to_drags(chart: EChartsType, on_range: (from: number, to: number) => void): Promise<void> {
  const { graphic } = await import("./engine-more");
  const zr = chart.getZr();
  const mark = new graphic.Rect({ z: 100, silent: true, invisible: true, style: { fill: "#2f74d0", opacity: 0.18 } });
  zr.add(mark);
  let start: number | null = null;

  function value_at(x: number): number {
    return Number(chart.convertFromPixel({ xAxisIndex: 0 }, x));
  }

  function end(pointer: Pointer | null): void {
    const from = start;
    start = null;
    mark.attr("invisible", true);
    if (from === null || pointer === null || Math.abs(pointer.offsetX - from) < LEAST_PX) return;
    const ends = [value_at(from), value_at(pointer.offsetX)].sort((a, b) => a - b);
    if (ends.every(Number.isFinite)) on_range(ends[0] ?? 0, ends[1] ?? 0);
  }

  zr.on("mousedown", (event) => {
    start = chart.containPixel("grid", [event.offsetX, event.offsetY]) ? event.offsetX : null;
  });
  zr.on("mousemove", (event) => {
    if (start === null) return;
    const x = Math.min(start, event.offsetX);
    mark.attr({ invisible: false, shape: { x, y: 0, width: Math.abs(event.offsetX - start), height: chart.getHeight() } });
  });
  zr.on("mouseup", (event) => end(event));
  zr.on("globalout", () => end(null));
}
