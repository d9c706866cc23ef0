// Draws the visible frames on a canvas, at most once per screen frame.
import { categoryColor, TEXT_COLORS } from "./palette";
import { Frames, get2dContext } from "../canvas/frames";
import { hex, mixColors, rgb, type Rgb, type ThemeName } from "../lib/color";
import { displayText } from "../lib/text";
import type { Base, SearchMatches, Layout, Tree } from "./flame-tree";

export const ROW_PX = 19;
const FONT = "11.5px system-ui, sans-serif";
const MIN_TEXT_PX = 26;
const MIN_PX = 0.4;
const MOVE_MS = 160;
/** A change by half has the strongest color. */
const FULL_COLOR_RATIO = 0.5;
const NOISE_RATIO = 0.03;

export interface Picture {
  tree: Tree;
  layout: Layout;
  base: Base | null;
  kind: (name: string) => string;
  matches: SearchMatches | null;
  theme: ThemeName;
  /** Whether the root is at the top. */
  down: boolean;
}

/** Names of one kind get slightly different shades. */
function shade(name: string): number {
  let sum = 0;
  for (let i = 0; i < name.length; i += 1) sum = (sum * 31 + name.charCodeAt(i)) | 0;
  return (sum & 0xff) / 255;
}

export class Painter extends Frames {
  picture: Picture | null = null;
  hovered = -1;
  chosen = -1;
  private from: readonly [number, number] = [0, 1];
  private to: readonly [number, number] = [0, 1];
  private startedAt = -Infinity;
  private fills: string[] = [];

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly still: boolean,
  ) {
    super();
  }

  show(picture: Picture): void {
    this.picture = picture;
    this.fills = picture.tree.name.map((name, frame) => this.fill(picture, name, frame));
    this.invalidate();
  }

  /** Animate to a part of the width. */
  look(left: number, right: number, atOnce = false): void {
    this.from = this.range();
    this.to = [left, right];
    this.startedAt = atOnce || this.still ? -Infinity : performance.now();
    this.invalidate();
  }

  stop(): void {
    this.cancel();
  }

  get height(): number {
    return (this.picture?.layout.rows.length ?? 0) * ROW_PX;
  }

  /** The visible part of the width. */
  range(): readonly [number, number] {
    const done = Math.min(1, (performance.now() - this.startedAt) / MOVE_MS);
    const part = 1 - (1 - done) ** 3;
    return [this.from[0] + (this.to[0] - this.from[0]) * part, this.from[1] + (this.to[1] - this.from[1]) * part];
  }

  /** Return the frame at a point in CSS pixels, or -1. */
  frameAt(x: number, y: number): number {
    const { picture } = this;
    if (!picture || this.canvas.clientWidth === 0) return -1;
    const [left, right] = this.range();
    const position = left + (x / this.canvas.clientWidth) * (right - left);
    const line = Math.floor(y / ROW_PX);
    const row = picture.layout.rows[picture.down ? line : picture.layout.rows.length - 1 - line] ?? [];
    const frame = row[this.firstFrom(row, position) - 1] ?? row[0];
    if (frame === undefined) return -1;
    const start = picture.layout.x[frame] ?? 0;
    return position >= start && position < start + (picture.layout.width[frame] ?? 0) ? frame : -1;
  }

  /** Return the position of the first frame of a row that starts after `position`. */
  private firstFrom(row: readonly number[], position: number): number {
    let [low, high] = [0, row.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.picture?.layout.x[row[middle] ?? 0] ?? 0) <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private fill({ tree, base, kind, theme, matches: matches }: Picture, name: string, frame: number): string {
    const ground = rgb(TEXT_COLORS[theme].surface);
    const faded = matches !== null && !matches.frames.has(frame);
    let color: Rgb;
    if (base) {
      const [before, now] = [base[frame] ?? 0, tree.total[frame] ?? 0];
      const change = now > 0 || before > 0 ? (now - before) / Math.max(now, before) : 0;
      const strength = Math.abs(change) < NOISE_RATIO ? 0 : Math.min(1, Math.abs(change) / FULL_COLOR_RATIO);
      color = mixColors(
        rgb(theme === "light" ? "#e9edf2" : "#323a46"),
        rgb(change > 0 ? categoryColor("worse", theme) : categoryColor("kernel", theme)),
        strength * (theme === "light" ? 0.6 : 0.75),
      );
    } else {
      color = mixColors(
        rgb(categoryColor(kind(name), theme)),
        ground,
        (theme === "light" ? 0.5 : 0.42) + shade(name) * 0.2,
      );
    }
    return hex(faded ? mixColors(color, ground, 0.75) : color);
  }

  protected draw(): void {
    const { picture, canvas } = this;
    if (!picture) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 16_000 / Math.max(1, this.height));
    const wide = canvas.clientWidth;
    const pen = get2dContext(canvas, Math.round(wide * ratio), Math.round(this.height * ratio));
    if (!pen) return;
    const [left, right] = this.range();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, this.height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    picture.layout.rows.forEach((row, depth) =>
      this.drawRow(
        pen,
        row,
        (picture.down ? depth : picture.layout.rows.length - 1 - depth) * ROW_PX,
        left,
        wide / (right - left),
        wide,
      ),
    );
    if (performance.now() - this.startedAt < MOVE_MS) this.invalidate();
  }

  private drawRow(
    pen: CanvasRenderingContext2D,
    row: readonly number[],
    y: number,
    left: number,
    scale: number,
    wide: number,
  ): void {
    const { picture } = this;
    if (!picture) return;
    const ink = TEXT_COLORS[picture.theme];
    for (let index = Math.max(0, this.firstFrom(row, left) - 1); index < row.length; index += 1) {
      const frame = row[index] ?? 0;
      const from = ((picture.layout.x[frame] ?? 0) - left) * scale;
      if (from > wide) break;
      const until = Math.min(wide, from + (picture.layout.width[frame] ?? 0) * scale);
      const start = Math.max(0, from);
      const room = until - start;
      if (room < MIN_PX) continue;
      pen.fillStyle = this.fills[frame] ?? ink.line;
      pen.fillRect(start, y, Math.max(room - (room > 3 ? 1 : 0), MIN_PX), ROW_PX - 1);
      if (frame === this.hovered || frame === this.chosen) {
        pen.strokeStyle = ink.text;
        pen.lineWidth = frame === this.chosen ? 2 : 1;
        pen.strokeRect(start + 1, y + 1, Math.max(room - 3, 1), ROW_PX - 3);
      }
      if (room > MIN_TEXT_PX) {
        pen.fillStyle = picture.matches && !picture.matches.frames.has(frame) ? ink.muted : ink.text;
        pen.fillText(fitText(pen, displayText(picture.tree.name[frame] ?? ""), room - 9), start + 4, y + ROW_PX / 2);
      }
    }
  }
}

const widths = new Map<string, number>();

/** Shorten a text to the available width. */
function fitText(pen: CanvasRenderingContext2D, text: string, room: number): string {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    width = pen.measureText(text).width;
    widths.set(text, width);
  }
  if (width <= room) return text;
  const signs = Math.floor(((room - 8) / width) * text.length);
  return signs > 1 ? `${text.slice(0, signs)}…` : "";
}
