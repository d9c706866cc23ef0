/** Draws when something changed, and at most once a frame. */
export abstract class Frames {
  private request = 0;

  protected abstract draw(): void;

  invalidate(): void {
    this.request ||= requestAnimationFrame(() => {
      this.request = 0;
      this.draw();
    });
  }

  protected cancel(): void {
    cancelAnimationFrame(this.request);
    this.request = 0;
  }
}

/** The pen of a canvas of that many device pixels; setting a size clears, so it is only set when it is another. */
export function get2dContext(
  canvas: HTMLCanvasElement | null,
  width: number,
  height: number,
  opaque = false,
): CanvasRenderingContext2D | null {
  if (!canvas) return null;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  return canvas.getContext("2d", { alpha: !opaque });
}
