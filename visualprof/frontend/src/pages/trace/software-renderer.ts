// Software rendering of slices: one row of pixels per lane, copied down. Faster than canvas calls without a graphics
// card.
import { paintRow } from "./slice-geometry";
import type { Column, Picture, Renderer } from "./renderer";

function paintColumns(pixels: Uint32Array, width: number, columns: readonly Column[]): void {
  for (const { x, width: wide, color } of columns)
    pixels.fill(color, Math.max(0, x), Math.max(0, Math.min(width, x + wide)));
}

/** Render the whole picture in memory, without a canvas, so that tests can check pixels. */
export function rasterize(pixels: Uint32Array, picture: Picture): void {
  const { width, height } = picture;
  pixels.fill(picture.ground, 0, width);
  paintColumns(pixels, width, picture.columns);
  // Fill the rest by copying the first row, doubling each time.
  for (let done = 1; done < height; done *= 2)
    pixels.copyWithin(done * width, 0, Math.min(done, height - done) * width);
  for (const { y, height: bandHeight, color } of picture.bands) {
    pixels.fill(color, Math.max(0, y) * width, Math.max(0, Math.min(height, y + bandHeight)) * width);
  }
  for (const strip of picture.strips) {
    const top = Math.max(strip.y, strip.top);
    const bottom = Math.min(strip.y + strip.height, strip.bottom);
    if (bottom <= top) continue;
    for (const part of strip.parts) paintRow(pixels, top * width, part, strip.lane);
    for (let row = top + 1; row < bottom; row += 1) pixels.copyWithin(row * width, top * width, (top + 1) * width);
  }
}

export function softwareRenderer(canvas: HTMLCanvasElement): Renderer | null {
  // `willReadFrequently` keeps the canvas in main memory, where putImageData is a plain copy.
  const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
  if (!context) return null;
  let image: ImageData | null = null;
  let pixels = new Uint32Array(0);
  return {
    name: "software",
    draw(picture) {
      const { width, height } = picture;
      if (width < 1 || height < 1) return;
      if (!image || image.width !== width || image.height !== height) {
        canvas.width = width;
        canvas.height = height;
        image = context.createImageData(width, height);
        pixels = new Uint32Array(image.data.buffer);
      }
      rasterize(pixels, picture);
      context.putImageData(image, 0, 0);
    },
    dispose() {
      image = null;
      pixels = new Uint32Array(0);
    },
  };
}
