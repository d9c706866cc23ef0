// A picture with its texts and colors: everything that painting and pointing need, in picture units.
import type { Graph } from "../graph";
import { groupLabel, nodeLabel, type Label } from "../labels";
import type { Picture } from "../layout/picture";
import { operatorFamily, type Family } from "./operator-family";
import type { Box } from "./camera";

export interface Scene {
  graph: Graph;
  picture: Picture;
  labels: Label[];
  families: (Family | null)[];
  /** Box of each item in the picture; -1 if it is inside a folded group. */
  boxIndex: Int32Array;
  /** Nesting depth of each box. */
  depth: Uint8Array;
  /** Bounds of edge e: 4 e .. 4 e + 3. */
  bounds: Float32Array;
  /** Hidden edges by the box in which they end. */
  stubs: Map<number, number[]>;
  /** Text at the start of an edge: the shape of its value; "" if its slot already has one. */
  shapes: string[];
}

function shapeText(graph: Graph, picture: Picture, e: number): string {
  if (picture.fork[e] !== 0) return "";
  const [first, last] = [picture.behindStart[e] ?? 0, picture.behindStart[e + 1] ?? 0];
  const values = new Set<number>();
  for (let b = first; b < last; b += 1) values.add(graph.answer.edges.value[picture.behind[b] ?? 0] ?? 0);
  if (values.size > 1) return `×${values.size}`;
  const [value = 0] = values;
  return (graph.answer.values.shape[value] ?? "").replaceAll("x", "×");
}

export function buildScene(graph: Graph, picture: Picture): Scene {
  const boxes = picture.item.length;
  const position = new Int32Array(graph.nodes + graph.groups).fill(-1);
  const depth = new Uint8Array(boxes);
  const labels: Label[] = [];
  const families: (Family | null)[] = [];
  for (let i = 0; i < boxes; i += 1) {
    const item = picture.item[i] as number;
    const around = picture.around[i] as number;
    position[item] = i;
    depth[i] = around < 0 ? 0 : (depth[around] as number) + 1;
    labels.push(graph.isGroup(item) ? groupLabel(graph, item) : nodeLabel(graph.answer, item));
    families.push(graph.nodeOf(item) < 0 ? null : operatorFamily(graph.answer.nodes.type[graph.nodeOf(item)] ?? ""));
  }
  const edges = picture.kind.length;
  const bounds = new Float32Array(4 * edges);
  const stubs = new Map<number, number[]>();
  const shapes: string[] = [];
  for (let e = 0; e < edges; e += 1) {
    let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let p = picture.start[e] as number; p < (picture.start[e + 1] as number); p += 2) {
      x0 = Math.min(x0, picture.points[p] as number);
      x1 = Math.max(x1, picture.points[p] as number);
      y0 = Math.min(y0, picture.points[p + 1] as number);
      y1 = Math.max(y1, picture.points[p + 1] as number);
    }
    bounds.set([x0, y0, x1, y1], 4 * e);
    const to = picture.to[e] as number;
    if (picture.kind[e] === 1 && to >= 0) stubs.set(to, [...(stubs.get(to) ?? []), e]);
    shapes.push(picture.kind[e] === 1 ? "" : shapeText(graph, picture, e));
  }
  return { graph, picture, labels, families, boxIndex: position, depth, bounds, stubs, shapes };
}

export function boxOf(scene: Scene, i: number): Box {
  const { x, y, w, h } = scene.picture;
  return { x: x[i] ?? 0, y: y[i] ?? 0, w: w[i] ?? 0, h: h[i] ?? 0 };
}

/** Return the box of an item or of the folded group that contains it; -1 for the model itself. */
export function visibleBox(scene: Scene, item: number): number {
  for (let at = item; at >= 0; at = scene.graph.parent[at] ?? -1)
    if ((scene.boxIndex[at] ?? -1) >= 0) return scene.boxIndex[at] ?? -1;
  return -1;
}

/** Return the node at the start of an edge. */
export function edgeSource(scene: Scene, e: number): number {
  return scene.graph.src[scene.picture.behind[scene.picture.behindStart[e] ?? 0] ?? 0] ?? 0;
}
