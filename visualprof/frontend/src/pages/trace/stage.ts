// Draws frames after changes only. Knows canvases, tiles and time, but not Vue or addresses.
import type { ThemeName } from "../../lib/color";
import { Frames, get2dContext } from "../../canvas/frames";
import { useStored } from "../../state/preferences";
import { Camera } from "./camera";
import { hitAt, type Hit } from "./hit";
import { readColors, type TimelineColors } from "./colors";
import type { Layout } from "./layout";
import { SliceStyle } from "./slice-style";
import { drawOverlay, type OverlayMarks } from "./overlay";
import type { Column, Renderer } from "./renderer";
import { AXIS_PX, drawRuler, gridStep } from "./ruler";
import { SceneBuilder, timeToX, type Scene } from "./scene";
import { softwareRenderer } from "./software-renderer";
import type { TraceSource } from "./trace-source";
import { STEPS_PX } from "./steps";
import type { Surface } from "./surface";
import { TileStore } from "./tile-store";
import { ticks } from "./ticks";
import { hasGraphicsCard, webglRenderer } from "./webgl-renderer";

/** After this time without movement, a frame with all labels is drawn. */
const REST_MS = 140;

interface Canvases {
  slices: HTMLCanvasElement;
  overlay: HTMLCanvasElement;
  ruler: HTMLCanvasElement;
}

/** `visualprof.renderer` in the browser's storage overrides the choice, for broken drivers and for tests. */
function rendererFor(canvas: HTMLCanvasElement): Renderer | null {
  const preferred = useStored<string>("renderer", "").value;
  const useCard = preferred === "webgl" || (preferred !== "software" && hasGraphicsCard());
  return (useCard ? webglRenderer(canvas) : null) ?? softwareRenderer(canvas);
}

export class Stage extends Frames {
  readonly camera = new Camera();
  readonly store = new TileStore(() => this.invalidate());
  layout: Layout = { rows: [], height: 0, pinned: [], pinnedHeight: 0, hiddenCount: 0 };
  sources: readonly TraceSource[] = [];
  /** The worker whose steps and profile are shown. */
  main: TraceSource | null = null;
  marks: OverlayMarks = {
    selected: null,
    counterpart: null,
    links: [],
    hover: null,
    area: null,
    markers: [],
    cursor: null,
    matches: [],
    searching: false,
  };
  selectedStep: string | null = null;
  /** Its counterpart in the base. */
  baseStep: string | null = null;
  /** Whether the critical path is drawn. */
  path = false;
  scene: Scene | null = null;
  width = 0;
  height = 0;
  scroll = 0;
  /** Called after each frame. */
  lastDrawn: (scene: Scene, moving: boolean) => void = () => undefined;
  private theme: ThemeName = "light";
  private colors: TimelineColors | null = null;
  private styles = new Map<TraceSource, SliceStyle>();
  private canvases: Canvases | null = null;
  private renderer: Renderer | null = null;
  private restTimer = 0;
  private movedAt = -Infinity;
  private lastView = "";
  private painted = false;
  private complete = false;

  attach(canvases: Canvases): void {
    this.canvases = canvases;
    this.renderer = rendererFor(canvases.slices);
    this.invalidate();
  }

  get rendererName(): string {
    return this.renderer?.name ?? "";
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.invalidate();
  }

  setMarks(marks: Partial<OverlayMarks>): void {
    this.marks = { ...this.marks, ...marks };
    this.invalidate();
  }

  setTheme(theme: ThemeName): void {
    this.theme = theme;
    this.colors = null;
    this.recolor();
  }

  /** Names arrived or the search changed: matches are computed again. */
  recolor(): void {
    this.styles = new Map();
    this.invalidate();
  }

  dispose(): void {
    this.cancel();
    clearTimeout(this.restTimer);
    this.store.close();
    this.renderer?.dispose();
    this.canvases = null;
  }

  hit(cssX: number, cssY: number): Hit | null {
    return this.scene && hitAt(this.scene, cssX * this.scene.ratio, cssY * this.scene.ratio);
  }

  styleFor(source: TraceSource): SliceStyle {
    let look = this.styles.get(source);
    if (!look) {
      look = new SliceStyle(source.meta.categories, this.theme, this.marks.searching ? source.names : null);
      this.styles.set(source, look);
    }
    return look;
  }

  /** For an image of the screen: slices and overlay. */
  get layers(): readonly HTMLCanvasElement[] {
    return this.canvases ? [this.canvases.slices, this.canvases.overlay] : [];
  }

  get colorsFor(): TimelineColors {
    return (this.colors ??= readColors());
  }

  protected override draw(): void {
    if (!this.canvases || !this.renderer || this.width < 1 || this.height < 1) return;
    const moving = this.noteMotion();
    const ratio = window.devicePixelRatio || 1;
    const builder = new SceneBuilder(
      { camera: this.camera, width: this.width, height: this.height, scroll: this.scroll, ratio, path: this.path },
      this.store,
    );
    const scene = builder.build(this.layout, (worker) => this.sources.find((source) => source.id.worker === worker));
    this.scene = scene;
    this.store.request(scene.requests);
    for (const parts of new Set(scene.strips.map((strip) => strip.parts))) {
      const owner = scene.strips.find((strip) => strip.parts === parts)?.source;
      if (owner) for (const part of parts) this.styleFor(owner).apply(part.tile);
    }
    const ink = this.colorsFor;
    const bands = scene.rows
      .filter(({ row, y, top }) => !row.item && y >= top)
      .map(({ row, y }) => ({
        y: Math.round(y * ratio),
        height: Math.round(row.height * ratio),
        color: ink.pack(ink.head),
      }));
    this.renderer.draw({
      width: scene.width,
      height: scene.height,
      ground: ink.pack(ink.ground),
      columns: this.columns(scene, ink),
      bands,
      strips: scene.strips,
    });
    this.drawAbove(scene, ink, moving);
    this.notePaint(scene);
    this.lastDrawn(scene, moving);
  }

  /** A mark for the browser's performance panel, read by the benchmark. */
  private notePaint(scene: Scene): void {
    if (!this.painted && scene.strips.some((strip) => strip.parts.length > 0)) {
      this.painted = true;
      performance.mark("timeline.first-paint");
    }
    if (this.painted && !this.complete && scene.requests.every((wish) => wish.rank > 0)) {
      this.complete = true;
      performance.mark("timeline.complete");
    }
  }

  private drawAbove(scene: Scene, colors: TimelineColors, moving: boolean): void {
    const source = this.main;
    if (!this.canvases || !source) return;
    const steps = source.meta.steps.length > 0 ? source : null;
    const overlay = get2dContext(this.canvases.overlay, scene.width, scene.height);
    const above = get2dContext(
      this.canvases.ruler,
      scene.width,
      Math.round((AXIS_PX + (steps ? STEPS_PX : 0)) * scene.ratio),
    );
    if (!overlay || !above) return;
    const surface: Surface = {
      context: overlay,
      scene,
      layout: this.layout,
      scroll: this.scroll,
      colors,
      style: this.styleFor(source),
      theme: this.theme,
    };
    drawOverlay(surface, this.marks, moving, this.baseStep);
    drawRuler(above, scene, this.marks, steps, colors, this.selectedStep);
  }

  /** Every other step is shaded, and grid lines continue the ticks of the time axis. */
  private columns(scene: Scene, colors: TimelineColors): Column[] {
    const columns: Column[] = [];
    const source = this.main;
    source?.meta.steps.forEach(({ start_ns, duration_ns }, index) => {
      if (index % 2 === 0) return;
      const x0 = Math.round(timeToX(scene, start_ns + source.offset));
      const x1 = Math.round(timeToX(scene, start_ns + duration_ns + source.offset));
      if (x1 > 0 && x0 < scene.width)
        columns.push({
          x: Math.max(0, x0),
          width: Math.min(scene.width, x1) - Math.max(0, x0),
          color: colors.pack(colors.head),
        });
    });
    const end = scene.start + scene.width * scene.nsPerPixel;
    const wide = Math.max(1, Math.round(scene.ratio));
    for (const tick of ticks(scene.start, end, gridStep(scene)))
      columns.push({
        x: Math.max(0, Math.round(timeToX(scene, tick))),
        width: wide,
        color: colors.pack(colors.lineSoft),
      });
    return columns;
  }

  private noteMotion(): boolean {
    const view = `${this.camera.start} ${this.camera.end} ${this.scroll}`;
    const now = performance.now();
    if (view !== this.lastView) {
      this.lastView = view;
      this.movedAt = now;
      clearTimeout(this.restTimer);
      this.restTimer = window.setTimeout(() => this.invalidate(), REST_MS);
    }
    return now - this.movedAt < REST_MS - 20;
  }
}
