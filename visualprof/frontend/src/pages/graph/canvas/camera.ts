// The visible part of the picture: position and scale.

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

const MIN_SCALE = 0.004;
const MAX_SCALE = 4;

export class Camera {
  /** Picture coordinates of the upper left corner, and pixels per unit. */
  x = 0;
  y = 0;
  scale = 1;
  width = 1;
  height = 1;

  resize(width: number, height: number): void {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
  }

  toPicture(px: number, py: number): { x: number; y: number } {
    return { x: this.x + px / this.scale, y: this.y + py / this.scale };
  }

  toScreen(x: number, y: number): { x: number; y: number } {
    return { x: (x - this.x) * this.scale, y: (y - this.y) * this.scale };
  }

  pan(dx: number, dy: number): void {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
  }

  zoom(factor: number, px = this.width / 2, py = this.height / 2): void {
    const at = this.toPicture(px, py);
    this.scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    this.x = at.x - px / this.scale;
    this.y = at.y - py / this.scale;
  }

  center(box: Box): void {
    this.x = box.x + box.w / 2 - this.width / this.scale / 2;
    this.y = box.y + box.h / 2 - this.height / this.scale / 2;
  }

  /** Return the scale at which the whole box is visible, at most `maxScale`. */
  fitScale(box: Box, margin: number, maxScale = 1): number {
    const scale = Math.min(
      (this.width - 2 * margin) / Math.max(1, box.w),
      (this.height - 2 * margin) / Math.max(1, box.h),
    );
    return Math.min(maxScale, Math.max(MIN_SCALE, scale));
  }

  /** Move only as far as needed to show the box at a readable scale. */
  reveal(box: Box, leastScale = 0.55, margin = 60): void {
    if (this.scale < leastScale) this.scale = leastScale;
    else if (box.w * this.scale <= this.width - 2 * margin && box.h * this.scale <= this.height - 2 * margin) {
      const at = this.toScreen(box.x, box.y);
      const inside =
        at.x >= margin &&
        at.y >= margin &&
        at.x + box.w * this.scale <= this.width - margin &&
        at.y + box.h * this.scale <= this.height - margin;
      if (inside) return;
    }
    this.center({ ...box, h: Math.min(box.h, (this.height * 0.8) / this.scale) });
  }

  get view(): Box {
    return { x: this.x, y: this.y, w: this.width / this.scale, h: this.height / this.scale };
  }
}
