/** Draw after a change, at most once per frame. */
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

/**
 * Return the 2D context of a canvas with this size in device pixels. Setting the size clears the canvas, so an equal
 * size is not set again.
 */
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
