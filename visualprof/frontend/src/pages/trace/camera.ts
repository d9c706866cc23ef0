// The visible window of time. Pure state: what it shows is drawn elsewhere.
import type { Range } from "./model";

/** At the finest zoom a nanosecond is some pixels wide; no profiler resolves less. */
export const SHORTEST_NS = 40;
const MARGIN = 0.02;
/** What is a smaller part of the window is a hair that nobody finds. */
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

  /** The times that there are. The window may look a little beyond them. */
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
    // At least a corner of the trace stays in sight.
    const low = Math.max(whole.start, Math.min(whole.end - span, middle - span / 2));
    this.start = low;
    this.end = low + span;
  }

  /** As an address says it: exactly, as long as it is possible at all. */
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

  /** The instant `at` keeps its place. */
  zoom(at: number, factor: number): void {
    const whole = this.whole;
    const span = Math.max(SHORTEST_NS, Math.min(this.span * factor, whole.end - whole.start));
    const share = (at - this.start) / this.span;
    this.set(at - share * span, at - share * span + span);
  }

  /** Shows a range with some air around it. */
  fit(range: Range, air = 0.1): void {
    const length = Math.max(range.end - range.start, 1);
    const extra = Math.max(length * air, (SHORTEST_NS - length) / 2);
    this.set(range.start - extra, range.end + extra);
  }

  /** Moves no further than needed to see a range; zooms out when it is longer than the window, in when it is a hair. */
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
