// A range on a chart's x axis, selected by dragging or with the keyboard.
import type { EChartsType } from "./engine";

const MIN_PX = 6;

interface Pointer {
  offsetX: number;
  offsetY: number;
}

/** Return a function that draws a band between two pixels; null removes it. */
export type RangeBand = (ends: readonly [number, number] | null) => void;

/** Return null if the chart was disposed while the code was loading. */
export async function createRangeBand(chart: EChartsType): Promise<RangeBand | null> {
  const { graphic } = await import("./engine-more");
  if (chart.isDisposed()) return null;
  const mark = new graphic.Rect({ z: 100, silent: true, invisible: true, style: { fill: "#2f74d0", opacity: 0.18 } });
  chart.getZr().add(mark);
  return (ends) => {
    const [from, to] = ends ?? [0, 0];
    if (chart.isDisposed()) return; // The chart was drawn again meanwhile.
    mark.attr({
      invisible: ends === null,
      shape: { x: Math.min(from, to), y: 0, width: Math.abs(to - from), height: chart.getHeight() },
    });
  };
}

/** Call back with the two x values between which the pointer was dragged, the smaller one first. */
export function listenToDrags(chart: EChartsType, band: RangeBand, onRange: (from: number, to: number) => void): void {
  const zr = chart.getZr();
  let start: number | null = null;

  function valueAt(x: number): number {
    return Number(chart.convertFromPixel({ xAxisIndex: 0 }, x));
  }

  function end(pointer: Pointer | null): void {
    const from = start;
    start = null;
    band(null);
    if (from === null || pointer === null || Math.abs(pointer.offsetX - from) < MIN_PX) return;
    const ends = [valueAt(from), valueAt(pointer.offsetX)].sort((a, b) => a - b);
    if (ends.every(Number.isFinite)) onRange(ends[0] ?? 0, ends[1] ?? 0);
  }

  zr.on("mousedown", (event) => {
    start = chart.containPixel("grid", [event.offsetX, event.offsetY]) ? event.offsetX : null;
  });
  zr.on("mousemove", (event) => start !== null && band([start, event.offsetX]));
  zr.on("mouseup", (event) => end(event));
  zr.on("globalout", () => start !== null && end(null));
}
