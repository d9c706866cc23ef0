// The canvas of one model: camera, what is painted, and when.
import { Frames, pen_of } from "../../canvas/frames";
import { Camera } from "./canvas/camera";
import { colors_of, type Colors } from "./canvas/colors";
import { NO_MARKS, type Marks } from "./canvas/marks";
import { paint } from "./canvas/paint";
import type { Words } from "./canvas/paint_boxes";
import { box_of, type Scene } from "./canvas/scene";
import type { ThemeName } from "../../lib/color";

const TOP_MARGIN = 24;

export class Stage extends Frames {
  readonly camera = new Camera();
  scene: Scene | null = null;
  marks: Marks = NO_MARKS;
  colors: Colors;
  words: Words = { operators: String };
  /** Told after every frame. */
  on_frame: () => void = () => undefined;
  /** Milliseconds that the last frame took to paint. */
  frame_ms = 0;
  private canvas: HTMLCanvasElement | null = null;

  constructor(theme: ThemeName) {
    super();
    this.colors = colors_of(theme);
  }

  attach(canvas: HTMLCanvasElement): void {
    this.canvas = canvas;
  }

  detach(): void {
    this.cancel();
    this.canvas = null;
  }

  resize(width: number, height: number): void {
    this.camera.resize(width, height);
    this.invalidate();
  }

  /** The new picture; `anchor` stays where it is on the screen, without one the whole picture is shown. */
  show(scene: Scene | null, anchor: number): void {
    const before = this.scene && anchor >= 0 ? (this.scene.place[anchor] ?? -1) : -1;
    const held = before >= 0 && this.scene ? this.top_middle(this.scene, before) : null;
    const keeps = this.scene !== null && scene !== null && this.scene.graph === scene.graph && anchor >= 0;
    this.scene = scene;
    const after = scene && anchor >= 0 ? (scene.place[anchor] ?? -1) : -1;
    if (scene && held && after >= 0) {
      const now = this.top_middle(scene, after);
      this.camera.x += now.x - held.x;
      this.camera.y += now.y - held.y;
    } else if (scene && !keeps) this.fit();
    this.invalidate();
  }

  private top_middle(scene: Scene, i: number): { x: number; y: number } {
    const box = box_of(scene, i);
    return { x: box.x + box.w / 2, y: box.y };
  }

  /** The whole picture; where that would be too small to read, its beginning. */
  fit(whole = false): void {
    if (!this.scene) return;
    const { width, height, direction } = this.scene.picture;
    this.camera.fit({ x: 0, y: 0, w: width, h: height }, 44);
    if (!whole && this.camera.scale < 0.5) {
      const readable = direction === "td" ? (this.camera.width - 48) / width : (this.camera.height - 48) / height;
      this.camera.scale = Math.max(0.5, Math.min(0.85, readable));
      this.camera.centre({ x: 0, y: 0, w: width, h: height });
      if (direction === "td") this.camera.y = Math.max(this.camera.y, -TOP_MARGIN / this.camera.scale);
      if (direction === "td" && height * this.camera.scale > this.camera.height) this.camera.y = -TOP_MARGIN / this.camera.scale;
      if (direction === "lr" && width * this.camera.scale > this.camera.width) this.camera.x = -TOP_MARGIN / this.camera.scale;
    }
    this.invalidate();
  }

  reveal(item: number): void {
    const place = this.scene?.place[item] ?? -1;
    if (!this.scene || place < 0) return;
    this.camera.reveal(box_of(this.scene, place));
    this.invalidate();
  }

  protected override draw(): void {
    const begun = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(this.camera.width * ratio), Math.round(this.camera.height * ratio)];
    const pen = pen_of(this.canvas, width, height, true);
    if (!pen) return;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = this.colors.surface;
    pen.fillRect(0, 0, width, height);
    if (this.scene) {
      const scale = this.camera.scale * ratio;
      pen.setTransform(scale, 0, 0, scale, -this.camera.x * scale, -this.camera.y * scale);
      paint(pen, this.scene, this.camera.view, this.camera.scale, this.marks, this.colors, this.words);
    }
    this.frame_ms = performance.now() - begun;
    this.on_frame();
  }
}
