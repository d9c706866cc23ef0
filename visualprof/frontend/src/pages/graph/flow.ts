// Where data comes from and goes to: the neighbours of the selection, or all that leads to it and follows from it.
import { shown_place, type Scene } from "./canvas/scene";
import { DOWNSTREAM, UPSTREAM } from "./canvas/marks";
import type { Graph } from "./graph";
import { entries_of } from "./layout/adjacency";

interface Flow {
  /** By original edge and by node: UPSTREAM, DOWNSTREAM or 0. */
  edges: Uint8Array;
  nodes: Uint8Array;
}

export function flow_of(graph: Graph, item: number, whole: boolean): Flow {
  const edges = new Uint8Array(graph.src.length);
  const nodes = new Uint8Array(graph.nodes);
  const own = graph.below(item);
  const inside = new Uint8Array(graph.nodes);
  for (const node of own) inside[node] = 1;
  for (const [mark, list, ends] of [[UPSTREAM, graph.in_edges, graph.src], [DOWNSTREAM, graph.out_edges, graph.dst]] as const) {
    const seen = inside.slice();
    const open = [...own];
    while (open.length > 0) {
      const node = open.pop() as number;
      for (const edge of entries_of(list, node)) {
        const next = ends[edge] as number;
        if (inside[next]) continue;
        edges[edge] = mark;
        nodes[next] ||= mark;
        if (seen[next] || !whole) continue;
        seen[next] = 1;
        open.push(next);
      }
    }
  }
  return { edges, nodes };
}

/** The same for what is drawn: an edge or a folded group shows what any part of it is. */
export function flow_marks(scene: Scene, flow: Flow): { edges: Uint8Array; boxes: Uint8Array } {
  const { picture } = scene;
  const edges = new Uint8Array(picture.kind.length);
  for (let e = 0; e < edges.length; e += 1) {
    for (let b = picture.behind_start[e] as number; b < (picture.behind_start[e + 1] as number) && !edges[e]; b += 1) edges[e] = flow.edges[picture.behind[b] as number] as number;
  }
  const boxes = new Uint8Array(picture.item.length);
  flow.nodes.forEach((mark, node) => {
    if (!mark) return;
    const place = shown_place(scene, node);
    if (place >= 0) boxes[place] ||= mark;
  });
  return { edges, boxes };
}

/** Distinct neighbours of a selection, in the order of their edges. */
export function neighbours(graph: Graph, item: number, way: "in" | "out"): number[] {
  const own = new Set(graph.below(item));
  const list = way === "in" ? graph.in_edges : graph.out_edges;
  const ends = way === "in" ? graph.src : graph.dst;
  const out = new Set<number>();
  for (const node of own) {
    for (const edge of entries_of(list, node)) if (!own.has(ends[edge] as number)) out.add(ends[edge] as number);
  }
  return [...out];
}
