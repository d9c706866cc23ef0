// The content of one frame: visible rows, their lanes, and their tiles, which are loaded or requested.
import type { Camera } from "./camera";
import { laneBoxes, type LaneBox } from "./lanes";
import { rowsBetween, type Layout, type Row } from "./layout";
import { tilesIn } from "./tile-levels";
import type { Strip } from "./renderer";
import type { TileKind, TraceSource } from "./trace-source";
import type { Part } from "./slice-geometry";
import type { CounterTile, SliceTile, Tile } from "./tile";
import type { TileStore, TileRequest } from "./tile-store";

const FINER_LEVELS = 3;
const MAX_AHEAD = 8;
/** Number of coarser levels that are also requested, as substitutes after a jump. */
const COARSER_LEVELS = 3;

interface View {
  camera: Camera;
  /** CSS pixels. */
  width: number;
  height: number;
  scroll: number;
  ratio: number;
  /** Whether the critical path is drawn. */
  path: boolean;
}

export interface SceneStrip extends Strip {
  row: Row;
  box: LaneBox;
  source: TraceSource;
}

interface CounterPart extends Omit<Part, "tile"> {
  tile: CounterTile;
}

export interface SceneRow {
  row: Row;
  source: TraceSource;
  /** CSS pixels from the top of the canvas. */
  y: number;
  /** Nothing is drawn above this. */
  top: number;
  counters: readonly CounterPart[];
}

export interface Scene {
  /** Device pixels. */
  width: number;
  height: number;
  ratio: number;
  start: number;
  nsPerPixel: number;
  rows: SceneRow[];
  strips: SceneStrip[];
  /** The critical path of each trace; its lanes are tracks. Null if it is not drawn. */
  paths: ReadonlyMap<TraceSource, readonly Part[]> | null;
  requests: TileRequest[];
}

export class SceneBuilder {
  private readonly requests: TileRequest[] = [];
  private readonly found = new Map<string, Part[] | CounterPart[]>();
  private readonly width: number;
  private readonly nsPerPixel: number;

  constructor(
    private readonly view: View,
    private readonly store: TileStore,
  ) {
    this.width = Math.max(1, Math.round(view.width * view.ratio));
    this.nsPerPixel = view.camera.span / this.width;
  }

  build(layout: Layout, sourceOf: (worker: number) => TraceSource | undefined): Scene {
    const { view } = this;
    const rows: SceneRow[] = [];
    const strips: SceneStrip[] = [];
    const add = (row: Row, y: number, top: number) => {
      const source = sourceOf(row.worker);
      if (!source) return;
      const counter = row.item?.counter;
      rows.push({
        row,
        source,
        y,
        top,
        counters: counter ? (this.parts(source, "c", counter.id) as CounterPart[]) : [],
      });
      for (const box of laneBoxes(row)) this.addStrip(strips, row, source, box, y, top);
    };
    for (const row of layout.pinned) add(row, row.y, 0);
    const shift = layout.pinnedHeight - view.scroll;
    const [first, last] = rowsBetween(layout.rows, view.scroll, view.scroll + view.height - layout.pinnedHeight);
    for (const row of layout.rows.slice(first, last)) add(row, row.y + shift, layout.pinnedHeight);
    this.lookAhead(layout, sourceOf);
    const paths = view.path
      ? new Map(
          [...new Set(rows.map((row) => row.source))].map((source) => [source, this.parts(source, "p", 0) as Part[]]),
        )
      : null;
    return {
      width: this.width,
      height: Math.max(1, Math.round(view.height * view.ratio)),
      ratio: view.ratio,
      start: view.camera.start,
      nsPerPixel: this.nsPerPixel,
      rows,
      strips,
      paths,
      requests: this.requests,
    };
  }

  private addStrip(strips: SceneStrip[], row: Row, source: TraceSource, box: LaneBox, y: number, top: number): void {
    const { ratio, height } = this.view;
    if (y + box.top > height || y + box.top + box.height < top) return;
    const from = Math.round((y + box.top) * ratio);
    strips.push({
      y: from,
      height: Math.max(1, Math.round((y + box.top + box.height) * ratio) - from),
      lane: box.track.group_lane + box.lane,
      parts: this.parts(source, "g", box.track.group) as Part[],
      top: Math.round(top * ratio),
      bottom: Math.round(height * ratio),
      row,
      box,
      source,
    });
  }

  /** Return the tiles of a group or counter in the window, computed once per frame. */
  private parts(source: TraceSource, kind: TileKind, id: number): Part[] | CounterPart[] {
    const key = `${source.id.worker}${kind}${id}`;
    const cached = this.found.get(key);
    if (cached) return cached;
    const level = source.level(this.nsPerPixel);
    const { start, end } = this.view.camera;
    const [first, last] = tilesIn(start - source.offset, end - source.offset, level, source.meta.duration_ns);
    const parts: (Part | CounterPart)[] = [];
    for (let index = first; index <= last; index += 1) this.cover(parts, source, kind, id, level, index);
    this.found.set(key, parts as Part[]);
    this.wantAround(source, kind, id, level, first, last);
    return parts as Part[];
  }

  private cover(
    parts: (Part | CounterPart)[],
    source: TraceSource,
    kind: TileKind,
    id: number,
    level: number,
    index: number,
  ): void {
    const clip0 = Math.max(0, this.x(source.tileStart(level, index)));
    const ends = index + 1 > source.meta.duration_ns / 2 ** (level + 8);
    // Events at the end of the trace may still need its last pixel.
    const clip1 = Math.min(this.width, ends ? this.width : this.x(source.tileStart(level, index + 1)));
    const add = (tile: Tile, from: number, to: number) => {
      const scale = 2 ** tile.level / this.nsPerPixel;
      const offset = (source.tileStart(tile.level, tile.index) - this.view.camera.start) / this.nsPerPixel;
      parts.push({ tile: tile as SliceTile & CounterTile, scale, offset, clip0: from, clip1: to });
    };
    const tile = this.store.get(source.key(kind, id, level, index));
    if (tile) return add(tile, clip0, clip1);
    this.requests.push(source.tileRequest(kind, id, level, index, 0));
    for (let up = level + 1; up <= source.topLevel; up += 1) {
      const coarser = this.store.get(source.key(kind, id, up, Math.floor(index / 2 ** (up - level))));
      if (coarser) return add(coarser, clip0, clip1);
    }
    for (let down = 1; down <= Math.min(FINER_LEVELS, level); down += 1) {
      const many = 2 ** down;
      const finer = Array.from({ length: many }, (_, nth) =>
        this.store.get(source.key(kind, id, level - down, index * many + nth)),
      );
      for (const childTile of finer) {
        if (childTile)
          add(
            childTile,
            Math.max(0, this.x(source.tileStart(childTile.level, childTile.index))),
            Math.min(this.width, this.x(source.tileStart(childTile.level, childTile.index + 1))),
          );
      }
      if (finer.some(Boolean)) return;
    }
  }

  private x(ns: number): number {
    return Math.floor((ns - this.view.camera.start) / this.nsPerPixel);
  }

  private wantAround(
    source: TraceSource,
    kind: TileKind,
    id: number,
    level: number,
    first: number,
    last: number,
  ): void {
    if (last < first) return;
    this.wantCoarser(source, kind, id, level, 1);
    const lastIndex = Math.floor(source.meta.duration_ns / 2 ** (level + 8));
    const ahead = Math.min(MAX_AHEAD, last - first + 1);
    for (let away = 1; away <= ahead; away += 1) {
      for (const index of [last + away, first - away]) {
        if (index >= 0 && index <= lastIndex) this.requests.push(source.tileRequest(kind, id, level, index, 1 + away));
      }
    }
  }

  private wantCoarser(source: TraceSource, kind: TileKind, id: number, level: number, rank: number): void {
    const coarse = Math.min(source.topLevel, level + COARSER_LEVELS);
    const { start, end } = this.view.camera;
    const [first, last] = tilesIn(start - source.offset, end - source.offset, coarse, source.meta.duration_ns);
    for (let index = first; index <= last; index += 1)
      this.requests.push(source.tileRequest(kind, id, coarse, index, rank));
  }

  /** Rows just out of view get coarse tiles, so that scrolling shows no blank tracks. */
  private lookAhead(layout: Layout, sourceOf: (worker: number) => TraceSource | undefined): void {
    const { scroll, height } = this.view;
    const [first, last] = rowsBetween(layout.rows, scroll - height / 2, scroll + 1.5 * height);
    for (const row of layout.rows.slice(first, last)) {
      const source = sourceOf(row.worker);
      const id = row.item?.counter?.id ?? row.item?.track?.group;
      const kind = row.item?.counter ? "c" : "g";
      if (!source || id === undefined || this.found.has(`${source.id.worker}${kind}${id}`)) continue;
      this.found.set(`${source.id.worker}${kind}${id}`, []);
      this.wantCoarser(source, kind, id, source.level(this.nsPerPixel), 2 + MAX_AHEAD);
    }
  }
}

/** Device pixels from the left edge, as a fraction. */
export function timeToX(scene: Scene, ns: number): number {
  return (ns - scene.start) / scene.nsPerPixel;
}

export function xToTime(scene: Scene, deviceX: number): number {
  return scene.start + deviceX * scene.nsPerPixel;
}
