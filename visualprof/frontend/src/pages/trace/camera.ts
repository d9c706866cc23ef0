// The visible time window. Pure state without drawing.
import type { Range } from "./model";

/** At the highest zoom, a nanosecond is a few pixels wide; no profiler has a better resolution. */
export const SHORTEST_NS = 40;
const MARGIN = 0.02;
/** An event that is a smaller share of the window is too thin to see. */
const NARROW_SHARE = 1 / 150;
const NARROW_MARGIN = 10;

export class Camera {
  start = 0;
  end = 1;
  private from = 0;
  private until = 1;

  get span(): number {
    return this.end - this.start;
  }

  /** The time range of the traces. The window may extend slightly beyond it. */
  setExtent(from: number, until: number): void {
    this.from = from;
    this.until = Math.max(until, from + SHORTEST_NS);
  }

  get whole(): Range {
    const margin = Math.ceil((this.until - this.from) * MARGIN);
    return { start: Math.floor(this.from) - margin, end: Math.ceil(this.until) + margin };
  }

  get isWhole(): boolean {
    const whole = this.whole;
    return Math.abs(this.start - whole.start) < 1 && Math.abs(this.end - whole.end) < 1;
  }

  set(start: number, end: number): void {
    const whole = this.whole;
    const span = Math.max(SHORTEST_NS, Math.min(end - start, whole.end - whole.start));
    const middle = (start + end) / 2;
    // A small part of the trace stays visible.
    const low = Math.max(whole.start, Math.min(whole.end - span, middle - span / 2));
    this.start = low;
    this.end = low + span;
  }

  /** Set the window exactly as in an address, within the limits. */
  restore(start: number, end: number): void {
    this.set(start, end);
    if (Math.abs(this.start - start) < 1 && Math.abs(this.end - end) < 1) {
      this.start = start;
      this.end = end;
    }
  }

  pan(ns: number): void {
    this.set(this.start + ns, this.end + ns);
  }

  /** The time `at` keeps its position on the screen. */
  zoom(at: number, factor: number): void {
    const whole = this.whole;
    const span = Math.max(SHORTEST_NS, Math.min(this.span * factor, whole.end - whole.start));
    const share = (at - this.start) / this.span;
    this.set(at - share * span, at - share * span + span);
  }

  /** Show a range with some margin. */
  fit(range: Range, air = 0.1): void {
    const length = Math.max(range.end - range.start, 1);
    const extra = Math.max(length * air, (SHORTEST_NS - length) / 2);
    this.set(range.start - extra, range.end + extra);
  }

  /** Move only as far as needed to show a range. Zoom out if it is longer than the window, and in if it is too thin. */
  reveal(range: Range): void {
    const length = range.end - range.start;
    if (length > this.span) this.fit(range);
    else if (length < this.span * NARROW_SHARE) this.fit(range, NARROW_MARGIN);
    else if (range.start < this.start || range.end > this.end) {
      const middle = (range.start + range.end) / 2;
      this.set(middle - this.span / 2, middle + this.span / 2);
    }
  }
}
