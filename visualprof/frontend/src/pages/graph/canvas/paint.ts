// Paint the picture from back to front. The pen already uses picture units.
import type { Box } from "./camera";
import type { Colors } from "./colors";
import type { Highlights } from "./highlights";
import { paintBoxes, paintGrounds, type BoxTexts } from "./paint-boxes";
import { paintEdges } from "./paint-edges";
import { paintStubs } from "./paint-stubs";
import type { Pen } from "./pen";
import type { Scene } from "./scene";

export function paint(
  pen: Pen,
  scene: Scene,
  view: Box,
  scale: number,
  marks: Highlights,
  colors: Colors,
  words: BoxTexts,
): void {
  paintGrounds(pen, scene, view, scale, colors);
  paintEdges(pen, scene, view, scale, marks, colors);
  paintBoxes(pen, scene, view, scale, marks, colors, words);
  paintStubs(pen, scene, view, scale, colors);
}
