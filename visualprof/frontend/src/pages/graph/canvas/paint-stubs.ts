// A hidden edge ends in a small label at its consumer that names the producer, instead of a line across the picture.
import { TOP_DOWN } from "../layout/direction";
import { MAX_STUBS } from "../layout/problem";
import { textWidth } from "../layout/sizes";
import { isEnd, nodeLabel } from "../labels";
import type { Box } from "./camera";
import type { Colors } from "./colors";
import { fitText } from "./fit-text";
import { font, roundBox, type Pen } from "./pen";
import { boxOf, edgeSource, type Scene } from "./scene";

const TEXT = 0.45;
const HEIGHT = 11;
const GAP = 8;
const MAX_WIDTH = 78;

export function sourceName(scene: Scene, e: number): string {
  const { answer } = scene.graph;
  const node = edgeSource(scene, e);
  const { title, line } = nodeLabel(answer, node);
  return isEnd(answer.nodes.type[node] ?? "") ? title : line || title;
}

export function paintStubs(pen: Pen, scene: Scene, view: Box, scale: number, colors: Colors): void {
  if (scale < TEXT) return;
  const down = scene.picture.direction === TOP_DOWN;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  for (const [i, edges] of scene.stubs) {
    const box = boxOf(scene, i);
    if (
      box.x - 100 > view.x + view.w ||
      box.x + box.w < view.x ||
      box.y - 60 > view.y + view.h ||
      box.y + box.h < view.y
    )
      continue;
    const visibleEdges = edges.slice(0, MAX_STUBS);
    visibleEdges.forEach((e, k) => {
      const more = k === MAX_STUBS - 1 && edges.length > MAX_STUBS;
      const text = more ? `+${edges.length - MAX_STUBS + 1}` : fitText(sourceName(scene, e), MAX_WIDTH - 10, 9.5);
      const width = Math.min(MAX_WIDTH, textWidth(text) * 0.8 + 10);
      const stubsHeight = visibleEdges.length * (HEIGHT + 2) - 2;
      const left = down ? box.x - GAP - width : box.x + 6;
      const top = down
        ? box.y + Math.min(box.h, 40) / 2 - stubsHeight / 2 + k * (HEIGHT + 2)
        : box.y - 3 - (k + 1) * (HEIGHT + 2);
      pen.beginPath();
      if (down) {
        pen.moveTo(left + width, top + HEIGHT / 2);
        pen.lineTo(box.x, top + HEIGHT / 2);
      }
      pen.strokeStyle = colors.edge;
      pen.lineWidth = 1.1;
      pen.stroke();
      roundBox(pen, { x: left, y: top, w: width, h: HEIGHT }, HEIGHT / 2, colors.surface, colors.edge, 1.1);
      pen.font = font(8.5);
      pen.fillStyle = colors.muted;
      pen.fillText(text, left + 5, top + HEIGHT / 2 + 0.5);
    });
  }
}
