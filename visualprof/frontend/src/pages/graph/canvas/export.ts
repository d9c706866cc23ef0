// Export of the whole picture with all texts, independent of the visible part.
import { downloadFile, downloadCanvas } from "../../../lib/download";
import type { Colors } from "./colors";
import type { Highlights } from "./highlights";
import { paint } from "./paint";
import type { BoxTexts } from "./paint-boxes";
import { SvgPen } from "./svg";
import type { Scene } from "./scene";

const MARGIN = 16;
/** Browsers refuse larger canvases. */
const MAX_SIDE = 16_000;
const MAX_PIXELS = 120e6;
const EXPORT_SCALE = 2;

export function svgText(scene: Scene, marks: Highlights, colors: Colors, words: BoxTexts, title: string): string {
  const { width, height } = scene.picture;
  const pen = new SvgPen();
  paint(pen, scene, { x: 0, y: 0, w: width, h: height }, 1, { ...marks, hover: -1 }, colors, words);
  return pen.document(-MARGIN, -MARGIN, width + 2 * MARGIN, height + 2 * MARGIN, colors.surface, title);
}

export function saveSvg(scene: Scene, marks: Highlights, colors: Colors, words: BoxTexts, title: string): void {
  downloadFile(new Blob([svgText(scene, marks, colors, words, title)], { type: "image/svg+xml" }), `${title}.svg`);
}

/** Use the highest resolution that a canvas allows; very large pictures are scaled down. */
export async function savePng(
  scene: Scene,
  marks: Highlights,
  colors: Colors,
  words: BoxTexts,
  title: string,
): Promise<void> {
  const [width, height] = [scene.picture.width + 2 * MARGIN, scene.picture.height + 2 * MARGIN];
  const scale = Math.min(EXPORT_SCALE, MAX_SIDE / width, MAX_SIDE / height, Math.sqrt(MAX_PIXELS / (width * height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.fillStyle = colors.surface;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.setTransform(scale, 0, 0, scale, MARGIN * scale, MARGIN * scale);
  paint(pen, scene, { x: 0, y: 0, w: width, h: height }, scale, { ...marks, hover: -1 }, colors, words);
  await downloadCanvas(canvas, `${title}.png`);
}
