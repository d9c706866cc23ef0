// The canvas of one model: camera, content and drawing.
import { Frames, get2dContext } from "../../canvas/frames";
import type { Point } from "../../canvas/pointer";
import { Camera } from "./canvas/camera";
import { readColors, type Colors } from "./canvas/colors";
import { NO_HIGHLIGHTS, type Highlights } from "./canvas/highlights";
import { paint } from "./canvas/paint";
import type { BoxTexts } from "./canvas/paint-boxes";
import { boxOf, visibleBox, type Scene } from "./canvas/scene";
import { TOP_DOWN } from "./layout/direction";
import type { ThemeName } from "../../lib/color";

const TOP_MARGIN = 24;
const MARGIN = 44;
/** Smaller text is not readable. */
const MIN_READABLE_SCALE = 0.5;

export class Stage extends Frames {
  readonly camera = new Camera();
  scene: Scene | null = null;
  highlights: Highlights = NO_HIGHLIGHTS;
  colors: Colors;
  texts: BoxTexts = { operators: String };
  /** Called after every frame. */
  onFrame: () => void = () => undefined;
  /** Whether the picture was not moved since it was fitted; it is then fitted again after a resize. */
  fitted = true;
  private canvas: HTMLCanvasElement | null = null;

  constructor(theme: ThemeName) {
    super();
    this.colors = readColors(theme);
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
    if (this.fitted) this.fit();
    this.invalidate();
  }

  /** Show a new picture. `anchor` keeps its position on the screen; without an anchor, the picture is fitted. */
  show(scene: Scene | null, anchor: number): void {
    const anchorPoint = anchor >= 0 ? this.pointOf(anchor) : null;
    const keeps = this.scene !== null && scene !== null && this.scene.graph === scene.graph && anchor >= 0;
    this.scene = scene;
    const now = anchorPoint && this.pointOf(anchor);
    if (anchorPoint && now) {
      this.camera.x += now.x - anchorPoint.x;
      this.camera.y += now.y - anchorPoint.y;
      this.moved();
    } else if (scene && !keeps) this.fit();
    this.invalidate();
  }

  /**
   * Return the center of the upper border of an item, or of the folded group that contains it; null if there is none.
   */
  pointOf(item: number): Point | null {
    const boxIndex = this.scene ? visibleBox(this.scene, item) : -1;
    if (!this.scene || boxIndex < 0) return null;
    const box = boxOf(this.scene, boxIndex);
    return { x: box.x + box.w / 2, y: box.y };
  }

  /** The scale at which the whole picture is visible. */
  get wholeScale(): number {
    const { width, height } = this.scene?.picture ?? { width: 1, height: 1 };
    return this.camera.fitScale({ x: 0, y: 0, w: width, h: height }, MARGIN);
  }

  /** The same scale or, if that is too small to read, one that shows the start of the picture. */
  get readableScale(): number {
    if (!this.scene || this.wholeScale >= MIN_READABLE_SCALE) return this.wholeScale;
    const { width, height, direction } = this.scene.picture;
    const across =
      direction === TOP_DOWN
        ? (this.camera.width - 2 * TOP_MARGIN) / width
        : (this.camera.height - 2 * TOP_MARGIN) / height;
    return Math.max(MIN_READABLE_SCALE, Math.min(0.85, across));
  }

  /** Center the whole picture, or show its start at the given scale. */
  fit(scale = this.readableScale): void {
    this.fitted = true;
    this.invalidate();
    if (!this.scene) return;
    const { width, height, direction } = this.scene.picture;
    this.camera.scale = scale;
    this.camera.center({ x: 0, y: 0, w: width, h: height });
    if (scale <= this.wholeScale) return;
    if (direction === TOP_DOWN) this.camera.y = -TOP_MARGIN / scale;
    else if (width * scale > this.camera.width) this.camera.x = -TOP_MARGIN / scale;
    this.centerStart(this.scene);
  }

  /** If a picture is wider (left-to-right: taller) than the area, center its start. */
  private centerStart({ picture }: Scene): void {
    const { view } = this.camera;
    const down = picture.direction === TOP_DOWN;
    if (down ? picture.width <= view.w : picture.height <= view.h) return;
    const [along, across, size, end] = down
      ? [picture.y, picture.x, picture.w, view.y + view.h]
      : [picture.x, picture.y, picture.h, view.x + view.w];
    let [low, high] = [Infinity, -Infinity];
    picture.item.forEach((_, i) => {
      if (picture.open[i] || (along[i] ?? 0) > end) return;
      low = Math.min(low, across[i] ?? 0);
      high = Math.max(high, (across[i] ?? 0) + (size[i] ?? 0));
    });
    if (low > high) return;
    if (down) this.camera.x = (low + high - view.w) / 2;
    else this.camera.y = (low + high - view.h) / 2;
  }

  /** Bring an item, or the folded group that contains it, into view. */
  reveal(item: number): void {
    const boxIndex = this.scene ? visibleBox(this.scene, item) : -1;
    if (!this.scene || boxIndex < 0) return;
    this.camera.reveal(boxOf(this.scene, boxIndex));
    this.moved();
  }

  pan(dx: number, dy: number): void {
    this.camera.pan(dx, dy);
    this.moved();
  }

  zoom(factor: number, px?: number, py?: number): void {
    this.camera.zoom(factor, px, py);
    this.moved();
  }

  /** Align a point of this picture with a point of another one, at the same scale. */
  alignWith(lead: Stage, at: Point, ownPoint: Point): void {
    this.camera.scale = lead.camera.scale;
    this.camera.x = ownPoint.x - (at.x - lead.camera.x);
    this.camera.y = ownPoint.y - (at.y - lead.camera.y);
    this.invalidate();
  }

  private moved(): void {
    this.fitted = false;
    this.invalidate();
  }

  protected override draw(): void {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(this.camera.width * ratio), Math.round(this.camera.height * ratio)];
    const pen = get2dContext(this.canvas, width, height, true);
    if (!pen) return;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = this.colors.surface;
    pen.fillRect(0, 0, width, height);
    if (this.scene) {
      const scale = this.camera.scale * ratio;
      pen.setTransform(scale, 0, 0, scale, -this.camera.x * scale, -this.camera.y * scale);
      paint(pen, this.scene, this.camera.view, this.camera.scale, this.highlights, this.colors, this.texts);
    }
    this.onFrame();
  }
}
