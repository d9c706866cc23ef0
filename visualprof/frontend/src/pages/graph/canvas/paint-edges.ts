// Edges: curves that start and end along the flow, with an arrow at the consumer and the shape at the producer.
import { spacingFor, TOP_DOWN } from "../layout/direction";
import { BACK, FAR, STUB } from "../layout/problem";
import type { Box } from "./camera";
import type { Colors } from "./colors";
import { UPSTREAM, type Highlights } from "./highlights";
import { fitText } from "./fit-text";
import { font, type Pen } from "./pen";
import type { Scene } from "./scene";

/** One path of very many curves is slower than several shorter ones. */
const EDGES_PER_PATH = 300;
const ARROW = 4.2;
/** Pixels per unit from which curves, arrows and shapes are visible. */
const MIN_CURVE_SCALE = 0.25;
const MIN_ARROW_SCALE = 0.35;
const MIN_LABEL_SCALE = 0.85;
const LOOP_ROOM = 34;
/** Longer shapes are cut; in left-to-right pictures they must fit between the ranks. */
const MAX_SHAPE_LENGTH = 150;

function isVisible(scene: Scene, e: number, view: Box): boolean {
  const { bounds } = scene;
  const slack = scene.picture.kind[e] === BACK ? LOOP_ROOM : 4;
  return (
    (bounds[4 * e] as number) - slack < view.x + view.w &&
    (bounds[4 * e + 2] as number) + slack > view.x &&
    (bounds[4 * e + 1] as number) - slack < view.y + view.h &&
    (bounds[4 * e + 3] as number) + slack > view.y
  );
}

function loop(pen: Pen, x0: number, y0: number, x1: number, y1: number, down: boolean): void {
  // Leave at the end, go around the side, and enter at the start.
  const out = LOOP_ROOM / 2;
  if (down) {
    const side = Math.max(x0, x1) + 90;
    pen.bezierCurveTo(x0, y0 + out, side, y0 + out, side, (y0 + y1) / 2);
    pen.bezierCurveTo(side, y1 - out, x1, y1 - out, x1, y1);
  } else {
    const side = Math.max(y0, y1) + 60;
    pen.bezierCurveTo(x0 + out, y0, x0 + out, side, (x0 + x1) / 2, side);
    pen.bezierCurveTo(x1 - out, side, x1 - out, y1, x1, y1);
  }
}

/** Add edge e to the path, from its fork on unless `withLabel`. */
function trace(pen: Pen, scene: Scene, e: number, curved: boolean, withLabel: boolean): void {
  const { picture } = scene;
  const { points } = picture;
  const down = picture.direction === TOP_DOWN;
  const end = picture.start[e + 1] as number;
  let p = (picture.start[e] as number) + (withLabel ? 0 : 2 * (picture.fork[e] as number));
  let [x, y] = [points[p] as number, points[p + 1] as number];
  pen.moveTo(x, y);
  if (picture.kind[e] === BACK) {
    loop(pen, x, y, points[end - 2] as number, points[end - 1] as number, down);
    return;
  }
  for (p += 2; p < end; p += 2) {
    const [toX, toY] = [points[p] as number, points[p + 1] as number];
    const straight = !curved || (down ? toX === x : toY === y);
    if (straight) pen.lineTo(toX, toY);
    else if (down) {
      const bend = Math.min(Math.abs(toY - y) / 2, 60);
      pen.bezierCurveTo(x, y + bend, toX, toY - bend, toX, toY);
    } else {
      const bend = Math.min(Math.abs(toX - x) / 2, 60);
      pen.bezierCurveTo(x + bend, y, toX - bend, toY, toX, toY);
    }
    [x, y] = [toX, toY];
  }
}

function arrow(pen: Pen, scene: Scene, e: number, size: number): void {
  const { picture } = scene;
  if ((picture.to[e] as number) < 0) return;
  const end = picture.start[e + 1] as number;
  const [x, y] = [picture.points[end - 2] as number, picture.points[end - 1] as number];
  pen.moveTo(x, y);
  if (picture.direction === TOP_DOWN) {
    pen.lineTo(x - size * 0.72, y - size * 1.5);
    pen.lineTo(x + size * 0.72, y - size * 1.5);
  } else {
    pen.lineTo(x - size * 1.5, y - size * 0.72);
    pen.lineTo(x - size * 1.5, y + size * 0.72);
  }
  pen.closePath();
}

function draw(
  pen: Pen,
  scene: Scene,
  edges: readonly number[],
  color: string,
  width: number,
  scale: number,
  withLabel: boolean,
): void {
  pen.strokeStyle = color;
  pen.fillStyle = color;
  pen.lineWidth = Math.max(width, 0.7 / scale);
  const dashed = (e: number) =>
    scene.picture.kind[e] === BACK || scene.picture.kind[e] === FAR || scene.picture.kind[e] === STUB;
  for (const dash of [false, true]) {
    const some = edges.filter((e) => dashed(e) === dash);
    if (dash) pen.setLineDash([6, 4]);
    for (let i = 0; i < some.length; i += EDGES_PER_PATH) {
      pen.beginPath();
      for (const e of some.slice(i, i + EDGES_PER_PATH)) trace(pen, scene, e, scale >= MIN_CURVE_SCALE, withLabel);
      pen.stroke();
    }
  }
  pen.setLineDash([]);
  if (scale < MIN_ARROW_SCALE) return;
  for (let i = 0; i < edges.length; i += EDGES_PER_PATH) {
    pen.beginPath();
    for (const e of edges.slice(i, i + EDGES_PER_PATH)) arrow(pen, scene, e, ARROW + width);
    pen.fill();
  }
}

export function paintEdges(pen: Pen, scene: Scene, view: Box, scale: number, marks: Highlights, colors: Colors): void {
  const plain: number[] = [];
  const up: number[] = [];
  const down: number[] = [];
  const { kind } = scene.picture;
  for (let e = 0; e < kind.length; e += 1) {
    const mark = marks.edges?.[e] ?? 0;
    if ((kind[e] === STUB && mark === 0) || !isVisible(scene, e, view)) continue;
    (mark === 0 ? plain : mark === UPSTREAM ? up : down).push(e);
  }
  pen.globalAlpha = marks.dim ? 0.25 : 1;
  draw(pen, scene, plain, colors.edge, 1.1, scale, false);
  if (scale >= MIN_LABEL_SCALE) paintShapes(pen, scene, plain, colors);
  pen.globalAlpha = 1;
  draw(pen, scene, up, colors.upstream, 2, scale, true);
  draw(pen, scene, down, colors.downstream, 2, scale, true);
  if (scale >= MIN_LABEL_SCALE) paintShapes(pen, scene, [...up, ...down], colors);
}

function paintShapes(pen: Pen, scene: Scene, edges: readonly number[], colors: Colors): void {
  const { picture } = scene;
  const down = picture.direction === TOP_DOWN;
  pen.font = font(9.5);
  pen.textAlign = down ? "center" : "left";
  pen.textBaseline = "middle";
  const labeled = new Set<string>();
  for (const e of edges) {
    const text = fitText(scene.shapes[e] ?? "", down ? MAX_SHAPE_LENGTH : spacingFor(picture.direction).rank - 14, 9.5);
    const p = picture.start[e] as number;
    // At the entry of an open group, the shape is already shown outside.
    if (!text || (picture.from[e] as number) < 0) continue;
    const [x, y] = [picture.points[p] as number, picture.points[p + 1] as number];
    const key = `${x} ${y}`;
    if (labeled.has(key)) continue;
    labeled.add(key);
    const width = text.length * 5.2 + 6;
    const [left, middle] = down ? [x - width / 2, y + 11] : [x + 5, y];
    const depth = scene.depth[picture.from[e] as number] as number;
    pen.fillStyle = depth === 0 ? colors.surface : (colors.group[(depth - 1) % colors.group.length] ?? colors.surface);
    pen.globalAlpha *= 0.82;
    pen.fillRect(left, middle - 6, width, 12);
    pen.globalAlpha /= 0.82;
    pen.fillStyle = colors.muted;
    pen.fillText(text, down ? x : left + 3, middle + 0.5);
  }
}
