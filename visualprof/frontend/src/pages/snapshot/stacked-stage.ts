// Draws stacked allocations. Each tile is a bitmap with one column per bucket; zooming and moving only move the bitmaps.
import { Frames, get2dContext } from "../../canvas/frames";
import { TEXT_COLORS } from "../../charts/palette";
import { hex, mixColors, rgb, type ThemeName } from "../../lib/color";
import { formatBytes, formatCount } from "../../lib/format";
import { roleColor } from "./colors";
import type { EntryWindow } from "./entry-window";
import { forEachRun, levelOf, tilesOf, type Run, type Tile } from "./tile";

export const MARGIN = { left: 66, right: 10, top: 20, bottom: 20 };
const TICK_PX = { x: 90, y: 40 };
const FONT = "11px system-ui, sans-serif";
const MIN_LINE_PX = 3;
const MIN_STEP_LABEL_PX = 40;
const FADE = 0.25;

export interface Marker {
  entry: number;
  label: string;
  color: string;
}

export interface NamedRange {
  name: string;
  first: number;
  last: number;
}

export interface Scene {
  theme: ThemeName;
  entries: number;
  finestLevel: number;
  maxLevel: number;
  window: EntryWindow;
  maxBytes: number;
  /** Whether the curves of allocated and reserved memory are drawn. */
  curves: boolean;
  steps: readonly NamedRange[];
  markers: readonly Marker[];
  cursor: number | null;
  selected: EntryWindow | null;
  block: number | null;
}

/** Names of one category get slightly different shades. */
function shade(name: string): number {
  let sum = 0;
  for (let i = 0; i < name.length; i += 1) sum = (sum * 31 + name.charCodeAt(i)) | 0;
  return (sum & 0xff) / 255;
}

/** Return a round step of 1, 2 or 5 times a power of `base`, at least `least`. */
export function roundStep(least: number, base: number): number {
  const power = base ** Math.floor(Math.log(Math.max(least, 1)) / Math.log(base));
  const factors = base === 2 ? [1, 2] : [1, 2, 5, 10];
  return power * (factors.find((factor) => factor * power >= least) ?? base);
}

export class StackedStage extends Frames {
  scene: Scene | null = null;
  private width = 0;
  private height = 0;
  private bitmaps = new WeakMap<Tile, { key: string; bitmap: HTMLCanvasElement }>();
  private runs = new WeakMap<Tile, { block: number; runs: Run[] }>();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly tile: (level: number, index: number) => Tile | null,
    private readonly drawn: (level: number, indices: readonly number[]) => void,
  ) {
    super();
  }

  resize(width: number, height: number): void {
    [this.width, this.height] = [width, height];
    this.invalidate();
  }

  stop(): void {
    this.cancel();
  }

  get plot(): { width: number; height: number } {
    return {
      width: Math.max(1, this.width - MARGIN.left - MARGIN.right),
      height: Math.max(1, this.height - MARGIN.top - MARGIN.bottom),
    };
  }

  entryAt(x: number): number {
    const { from, to } = this.scene?.window ?? { from: 0, to: 1 };
    return from + ((x - MARGIN.left) / this.plot.width) * (to - from);
  }

  bytesAt(y: number): number {
    return ((MARGIN.top + this.plot.height - y) / this.plot.height) * (this.scene?.maxBytes ?? 1);
  }

  /** Return the finest tile that has loaded for an entry. */
  tileAt(entry: number): Tile | null {
    const { scene } = this;
    if (!scene || entry < 0 || entry >= scene.entries) return null;
    const level = this.level(scene);
    const index = tilesOf(level, entry, entry, scene.entries)[0];
    return (index === undefined ? null : this.tile(level, index)) ?? this.tile(scene.maxLevel, 0);
  }

  private level({ window, finestLevel, maxLevel }: Scene): number {
    return levelOf(window.to - window.from, this.plot.width, finestLevel, maxLevel);
  }

  private x(entry: number): number {
    const { from, to } = this.scene?.window ?? { from: 0, to: 1 };
    return MARGIN.left + ((entry - from) / (to - from)) * this.plot.width;
  }

  private y(bytes: number): number {
    return MARGIN.top + this.plot.height * (1 - bytes / (this.scene?.maxBytes || 1));
  }

  protected draw(): void {
    const { scene, canvas, width, height } = this;
    const ratio = window.devicePixelRatio || 1;
    const pen = get2dContext(canvas, Math.round(width * ratio), Math.round(height * ratio));
    if (!scene || !pen || width === 0) return;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    this.drawGrid(pen, scene);
    const level = this.level(scene);
    const indices = tilesOf(level, scene.window.from, scene.window.to, scene.entries);
    const exact = indices.map((index) => this.tile(level, index));
    const coarse = exact.every(Boolean) ? null : this.tile(scene.maxLevel, 0);
    const tiles = [coarse, ...exact].filter((tile): tile is Tile => tile !== null);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, MARGIN.top, this.plot.width, this.plot.height);
    pen.clip();
    for (const tile of tiles) this.drawTile(pen, tile, scene, ratio);
    for (const tile of tiles) this.drawBlock(pen, tile, scene);
    if (scene.curves) for (const tile of exact.every(Boolean) ? exact : [coarse]) if (tile) this.drawCurves(pen, tile);
    pen.restore();
    this.drawMarks(pen, scene);
    this.drawn(level, indices);
  }

  private drawGrid(pen: CanvasRenderingContext2D, scene: Scene): void {
    const ink = TEXT_COLORS[scene.theme];
    const { width, height } = this.plot;
    pen.strokeStyle = ink.line;
    pen.fillStyle = ink.muted;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const step = roundStep(scene.maxBytes / Math.max(1, height / TICK_PX.y), 2);
    for (let bytes = 0; bytes <= scene.maxBytes; bytes += step) {
      const y = Math.round(this.y(bytes)) + 0.5;
      pen.beginPath();
      pen.moveTo(MARGIN.left, y);
      pen.lineTo(MARGIN.left + width, y);
      pen.stroke();
      pen.fillText(bytes === 0 ? "0" : formatBytes(bytes).replace(/\.0+(?=\D)/, ""), MARGIN.left - 6, y);
    }
    pen.textBaseline = "top";
    pen.textAlign = "center";
    const { from, to } = scene.window;
    const every = roundStep((to - from) / Math.max(1, width / TICK_PX.x), 10);
    for (let entry = Math.ceil(from / every) * every; entry <= to; entry += every) {
      const x = this.x(entry);
      if (x < MARGIN.left + width - 16) pen.fillText(formatCount(entry), x, MARGIN.top + height + 6);
    }
    this.drawSteps(pen, scene);
  }

  private drawSteps(pen: CanvasRenderingContext2D, scene: Scene): void {
    const ink = TEXT_COLORS[scene.theme];
    const right = MARGIN.left + this.plot.width;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    scene.steps.forEach((step, index) => {
      const [left, end] = [Math.max(MARGIN.left, this.x(step.first)), Math.min(right, this.x(step.last + 1))];
      if (end <= left) return;
      pen.fillStyle = ink.line;
      pen.globalAlpha = index % 2 === 0 ? 0.55 : 0.25;
      pen.fillRect(left, 2, end - left, this.plot.height + MARGIN.top - 2);
      pen.globalAlpha = 1;
      pen.fillStyle = ink.muted;
      if (end - left > MIN_STEP_LABEL_PX)
        pen.fillText(step.name.replace(/^ProfilerStep/, ""), left + 4, 4, end - left - 8);
    });
  }

  /** Replace the place of a tile by its bitmap. */
  private drawTile(pen: CanvasRenderingContext2D, tile: Tile, scene: Scene, ratio: number): void {
    const bitmap = this.bitmapOf(tile, scene, Math.round(this.plot.height * ratio));
    const [left, right] = [this.x(tile.firstEntry), this.x(tile.firstEntry + tile.entry.length * tile.bucketEntries)];
    if (bitmap.width === 0 || right <= MARGIN.left || left >= this.width) return;
    pen.imageSmoothingEnabled = false;
    pen.clearRect(left, MARGIN.top, right - left, this.plot.height);
    pen.drawImage(bitmap, left, MARGIN.top, right - left, this.plot.height);
  }

  private bitmapOf(tile: Tile, scene: Scene, height: number): HTMLCanvasElement {
    const key = `${height} ${scene.maxBytes} ${scene.theme}`;
    const painted = this.bitmaps.get(tile);
    if (painted?.key === key) return painted.bitmap;
    const bitmap = document.createElement("canvas");
    const pen = get2dContext(bitmap, tile.entry.length, height);
    if (pen) paintTile(pen, tile, height, scene);
    this.bitmaps.set(tile, { key, bitmap });
    return bitmap;
  }

  private drawBlock(pen: CanvasRenderingContext2D, tile: Tile, scene: Scene): void {
    if (scene.block === null) return;
    pen.strokeStyle = TEXT_COLORS[scene.theme].text;
    pen.lineWidth = 1.5;
    for (const { row, first, last, bottom } of this.runsOf(tile, scene.block)) {
      const left = this.x(tile.firstEntry + first * tile.bucketEntries);
      const right = this.x(tile.firstEntry + (last + 1) * tile.bucketEntries);
      const [top, base] = [this.y(bottom + row.bytes), this.y(bottom)];
      pen.strokeRect(left, top, Math.max(right - left, 1), Math.max(base - top, 1));
    }
  }

  /** Return the places of a block, computed once per tile. */
  private runsOf(tile: Tile, block: number): Run[] {
    const known = this.runs.get(tile);
    if (known?.block === block) return known.runs;
    const runs: Run[] = [];
    if (tile.blocks.some((row) => row.block === block))
      forEachRun(tile, (run) => run.row.block === block && runs.push(run));
    this.runs.set(tile, { block, runs });
    return runs;
  }

  private drawCurves(pen: CanvasRenderingContext2D, tile: Tile): void {
    const theme = this.scene?.theme ?? "light";
    const lines = [
      [tile.reserved, TEXT_COLORS[theme].muted, [5, 3]],
      [tile.allocated, TEXT_COLORS[theme].text, []],
    ] as const;
    for (const [values, color, dash] of lines) {
      pen.strokeStyle = color;
      pen.lineWidth = 1.2;
      pen.setLineDash([...dash]);
      pen.beginPath();
      values.forEach((bytes, bucket) => {
        const y = this.y(bytes);
        pen.lineTo(this.x(tile.firstEntry + bucket * tile.bucketEntries), y);
        pen.lineTo(this.x(tile.firstEntry + (bucket + 1) * tile.bucketEntries), y);
      });
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  private drawMarks(pen: CanvasRenderingContext2D, scene: Scene): void {
    const ink = TEXT_COLORS[scene.theme];
    const [top, bottom, right] = [MARGIN.top, MARGIN.top + this.plot.height, MARGIN.left + this.plot.width];
    const isShown = (x: number) => x >= MARGIN.left - 1 && x <= right + 1;
    if (scene.selected) {
      const [left, end] = [this.x(scene.selected.from), this.x(scene.selected.to)];
      pen.fillStyle = ink.text;
      pen.globalAlpha = FADE / 2;
      pen.fillRect(Math.max(left, MARGIN.left), top, Math.min(end, right) - Math.max(left, MARGIN.left), bottom - top);
      pen.globalAlpha = 1;
    }
    for (const { entry, label, color } of scene.markers) {
      const x = this.x(entry + 0.5);
      if (!isShown(x)) continue;
      pen.strokeStyle = pen.fillStyle = color;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x, top - 4);
      pen.lineTo(x, bottom);
      pen.stroke();
      const left = x + pen.measureText(label).width + 6 > right;
      pen.textAlign = left ? "right" : "left";
      pen.textBaseline = "top";
      pen.fillText(label, x + (left ? -4 : 4), top + 2);
    }
    if (scene.cursor === null || !isShown(this.x(scene.cursor + 0.5))) return;
    const x = Math.round(this.x(scene.cursor + 0.5)) + 0.5;
    pen.strokeStyle = ink.text;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, bottom + 4);
    pen.stroke();
  }
}

/** Draw a tile with one column per bucket. */
function paintTile(pen: CanvasRenderingContext2D, tile: Tile, height: number, scene: Scene): void {
  const ground = rgb(TEXT_COLORS[scene.theme].surface);
  const scale = height / (scene.maxBytes || 1);
  const colors = tile.categories.map((role) => rgb(roleColor(role, scene.theme)));
  const bottoms = new Float64Array(tile.entry.length);
  tile.bands.forEach((band, category) => {
    pen.fillStyle = hex(mixColors(colors[category] ?? ground, ground, 0.45));
    band.forEach((bytes, bucket) => {
      const bottom = bottoms[bucket] ?? 0;
      if (bytes > 0) pen.fillRect(bucket, height - (bottom + bytes) * scale, 1, bytes * scale);
      bottoms[bucket] = bottom + bytes;
    });
  });
  const edge = hex(ground);
  forEachRun(tile, ({ row, first, last, bottom }) => {
    const top = height - (bottom + row.bytes) * scale;
    const tall = row.bytes * scale;
    pen.fillStyle = hex(mixColors(colors[row.category] ?? ground, ground, 0.05 + shade(row.name) * 0.3));
    pen.fillRect(first, top, last - first + 1, tall);
    if (tall < MIN_LINE_PX) return;
    pen.fillStyle = edge;
    pen.fillRect(first, top, last - first + 1, 1);
  });
}
