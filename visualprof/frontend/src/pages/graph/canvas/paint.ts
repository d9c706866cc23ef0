// One picture, back to front. The pen is already in picture units.
import type { Box } from "./camera";
import type { Colors } from "./colors";
import type { Marks } from "./marks";
import { paint_boxes, paint_grounds, type Words } from "./paint_boxes";
import { paint_edges } from "./paint_edges";
import { paint_stubs } from "./paint_stubs";
import type { Pen } from "./pen";
import type { Scene } from "./scene";

export function paint(
  pen: Pen,
  scene: Scene,
  view: Box,
  scale: number,
  marks: Marks,
  colors: Colors,
  words: Words,
): void {
  paint_grounds(pen, scene, view, scale, colors);
  paint_edges(pen, scene, view, scale, marks, colors);
  paint_boxes(pen, scene, view, scale, marks, colors, words);
  paint_stubs(pen, scene, view, scale, colors);
}
