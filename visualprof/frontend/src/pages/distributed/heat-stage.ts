// Draws the heat map. Each answer is a bitmap with one pixel per cell; panning and zooming only move the bitmaps.
import { Frames, get2dContext } from "../../canvas/frames";
import type { Viewport } from "./heat-viewport";
import { tickPositions } from "./heat-viewport";

export interface Layer extends Viewport {
  bitmap: HTMLCanvasElement;
}

export interface Tick {
  /** Position of its row or column. */
  at: number;
  label: string;
}

export interface HeatColors {
  text: string;
  muted: string;
  line: string;
  accent: string;
}

const HATCH_PX = 8;
const GUTTER_PX = 72;
const NAMED_GUTTER_PX = 128;
export const AXIS_PX = 22;
const LABEL_PX = 13;
const FONT = "11px";

/** One pixel per cell. */
export function createBitmap(colors: Uint8ClampedArray<ArrayBuffer>, width: number, height: number): HTMLCanvasElement {
  const bitmap = document.createElement("canvas");
  if (width > 0 && height > 0)
    get2dContext(bitmap, width, height)?.putImageData(new ImageData(colors, width, height), 0, 0);
  return bitmap;
}

function shortenText(pen: CanvasRenderingContext2D, text: string, room: number): string {
  if (pen.measureText(text).width <= room) return text;
  let keptLength = text.length;
  while (keptLength > 1 && pen.measureText(`…${text.slice(-keptLength)}`).width > room) keptLength -= 1;
  return `…${text.slice(-keptLength)}`;
}

/** Fill of cells without data. */
function hatchPattern(line: string): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  const pen = get2dContext(tile, HATCH_PX, HATCH_PX);
  if (!pen) return tile;
  pen.strokeStyle = line;
  pen.globalAlpha = 0.4;
  for (const at of [-HATCH_PX, 0, HATCH_PX]) {
    pen.moveTo(at - 1, HATCH_PX + 1);
    pen.lineTo(at + HATCH_PX + 1, -1);
  }
  pen.stroke();
  return tile;
}

export class HeatStage extends Frames {
  viewport: Viewport = { row: 0, rows: 1, column: 0, columns: 1 };
  layers: Layer[] = [];
  groups: Tick[] = [];
  /** Return the name of a row or column. */
  rowLabel: (index: number) => string = String;
  columnLabel: (index: number) => string = String;
  colors: HeatColors = { text: "#000", muted: "#666", line: "#ccc", accent: "#00f" };
  font = "sans-serif";
  /** Highlighted row names, and framed cells. */
  chosen: ReadonlySet<number> = new Set();
  framed: readonly Viewport[] = [];
  cursor: Viewport | null = null;
  frames = 0;
  private width = 0;
  private height = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly overlay: HTMLCanvasElement,
  ) {
    super();
  }

  /** Whether the row names are long. */
  hasNames = false;

  /** Width left of the cells: for names of ranks, or of groups or hosts, which are longer. */
  private get gutter(): number {
    return this.hasNames || this.groups.length > 0 ? NAMED_GUTTER_PX : GUTTER_PX;
  }

  get plot(): { width: number; height: number } {
    return { width: Math.max(1, this.width - this.gutter), height: Math.max(1, this.height - AXIS_PX) };
  }

  resize(width: number, height: number): void {
    [this.width, this.height] = [width, height];
    this.invalidate();
  }

  dispose(): void {
    this.cancel();
  }

  /** Return the cell at a point of the canvas, or null outside of the plot. */
  cellAt(x: number, y: number): { row: number; column: number } | null {
    const { width, height } = this.plot;
    if (x < this.gutter || y < 0 || y >= height || x >= this.gutter + width) return null;
    return {
      row: this.viewport.row + (y / height) * this.viewport.rows,
      column: this.viewport.column + ((x - this.gutter) / width) * this.viewport.columns,
    };
  }

  private x(column: number): number {
    return this.gutter + ((column - this.viewport.column) / this.viewport.columns) * this.plot.width;
  }

  private y(row: number): number {
    return ((row - this.viewport.row) / this.viewport.rows) * this.plot.height;
  }

  private box({ row, rows, column, columns }: Viewport): [x: number, y: number, width: number, height: number] {
    const [x, y] = [this.x(column), this.y(row)];
    return [x, y, this.x(column + columns) - x, this.y(row + rows) - y];
  }

  protected draw(): void {
    this.frames += 1;
    const ratio = window.devicePixelRatio || 1;
    const pens = [this.canvas, this.overlay].map((canvas) =>
      get2dContext(canvas, Math.round(this.width * ratio), Math.round(this.height * ratio)),
    );
    const [pen, overlay] = pens;
    if (!pen || !overlay) return;
    for (const context of [pen, overlay]) {
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
    }
    this.drawCells(pen);
    this.drawAxes(pen);
    this.drawMarks(overlay);
  }

  private drawCells(pen: CanvasRenderingContext2D): void {
    const { width, height } = this.plot;
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, width, height);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    const hatch = pen.createPattern(hatchPattern(this.colors.line), "repeat");
    for (const { bitmap, ...area } of this.layers) {
      if (bitmap.width === 0) continue;
      const box = this.box(area);
      pen.clearRect(...box);
      if (hatch) pen.fillStyle = hatch;
      pen.fillRect(...box);
      pen.drawImage(bitmap, ...box);
    }
    pen.strokeStyle = this.colors.text;
    pen.lineWidth = 1.5;
    for (const frame of this.framed) {
      const [x, y, w, h] = this.box(frame);
      pen.strokeRect(x - 1, y - 1, w + 2, h + 2);
    }
    pen.restore();
  }

  private drawAxes(pen: CanvasRenderingContext2D): void {
    const { width, height } = this.plot;
    pen.font = `${FONT} ${this.font}`;
    pen.textBaseline = "middle";
    pen.strokeStyle = this.colors.line;
    pen.strokeRect(this.gutter - 0.5, 0.5, width, height - 1);
    this.drawGroups(pen);
    if (this.groups.length === 0) {
      pen.fillStyle = this.colors.muted;
      pen.textAlign = "right";
      const middle = Math.min(height / this.viewport.rows, 18) / 2;
      for (const at of tickPositions(this.viewport.row, this.viewport.rows, height, 18, "halves")) {
        pen.fillText(
          shortenText(pen, this.rowLabel(at), this.gutter - 12),
          this.gutter - 6,
          Math.max(6, Math.min(height - 6, this.y(at) + middle)),
        );
      }
    }
    pen.fillStyle = this.colors.muted;
    pen.textAlign = "center";
    for (const at of tickPositions(this.viewport.column, this.viewport.columns, width, 64, "tens")) {
      const x = this.x(at + 0.5);
      if (x > this.gutter && x < this.gutter + width)
        pen.fillText(shortenText(pen, this.columnLabel(at), 60), x, height + AXIS_PX / 2 + 1);
    }
  }

  private drawGroups(pen: CanvasRenderingContext2D): void {
    const { width, height } = this.plot;
    pen.textAlign = "right";
    pen.fillStyle = this.colors.text;
    let free = 0;
    this.groups.forEach(({ at, label }, index) => {
      const top = Math.max(0, this.y(at));
      const bottom = Math.min(height, this.y(this.groups[index + 1]?.at ?? this.viewport.row + this.viewport.rows));
      if (bottom <= 0 || top >= height) return;
      if (at > this.viewport.row && bottom - top > 5) {
        pen.beginPath();
        pen.moveTo(this.gutter - 8, Math.round(top) + 0.5);
        pen.lineTo(this.gutter + width, Math.round(top) + 0.5);
        pen.stroke();
      }
      const middle = Math.max(top + 7, Math.min(height - 7, (top + bottom) / 2));
      if (middle - LABEL_PX / 2 < free) return;
      pen.fillText(shortenText(pen, label, this.gutter - 12), this.gutter - 6, middle);
      free = middle + LABEL_PX / 2;
    });
  }

  private drawMarks(pen: CanvasRenderingContext2D): void {
    const { width, height } = this.plot;
    pen.strokeStyle = this.colors.accent;
    pen.fillStyle = this.colors.accent;
    for (const row of this.chosen) {
      const [top, bottom] = [this.y(row), this.y(row + 1)];
      if (bottom > 0 && top < height) pen.fillRect(this.gutter - 4, top, 4, Math.max(2, bottom - top));
    }
    if (!this.cursor) return;
    const [x, y, wide, high] = this.box(this.cursor);
    pen.globalAlpha = 0.35;
    pen.fillRect(this.gutter, Math.max(0, y) - 0.5, width, 1);
    pen.fillRect(this.gutter, Math.min(height, y + high) - 0.5, width, 1);
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, y - 1, Math.max(3, wide) + 2, Math.max(3, high) + 2);
    pen.lineWidth = 1;
  }
}
