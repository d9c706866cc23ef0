// The data flow: the neighbors of the selection, or everything upstream and downstream of it.
import { visibleBox, type Scene } from "./canvas/scene";
import { DOWNSTREAM, UPSTREAM } from "./canvas/highlights";
import type { Graph } from "./graph";
import { entriesOf, type Adjacency } from "./layout/adjacency";

interface Flow {
  /** Per original edge and node: UPSTREAM, DOWNSTREAM or 0. */
  edges: Uint8Array;
  nodes: Uint8Array;
}

/** Nodes that depend on a node without an edge: a node with bodies controls all nodes in them. */
function templateNodes(graph: Graph, node: number, mark: number): number[] {
  if (mark === DOWNSTREAM) return graph.item[node] === node ? [] : graph.below(graph.item[node] as number);
  return graph
    .around(node)
    .map((group) => graph.nodeOf(group))
    .filter((decides) => decides >= 0);
}

export function traceFlow(graph: Graph, item: number, transitive: boolean): Flow {
  const edges = new Uint8Array(graph.src.length);
  const nodes = new Uint8Array(graph.nodes);
  const members = graph.below(item);
  const inside = new Uint8Array(graph.nodes);
  for (const node of members) inside[node] = 1;
  for (const [mark, list, ends] of [
    [UPSTREAM, graph.inEdges, graph.src],
    [DOWNSTREAM, graph.outEdges, graph.dst],
  ] as const) {
    const visited = inside.slice();
    const open = [...members];
    while (open.length > 0) {
      const node = open.pop() as number;
      for (const next of transitive ? templateNodes(graph, node, mark) : []) {
        if (visited[next]) continue;
        visited[next] = 1;
        nodes[next] ||= mark;
        open.push(next);
      }
      for (const edge of entriesOf(list, node)) {
        const next = ends[edge] as number;
        if (inside[next]) continue;
        edges[edge] = mark;
        nodes[next] ||= mark;
        if (visited[next] || !transitive) continue;
        visited[next] = 1;
        open.push(next);
      }
    }
  }
  return { edges, nodes };
}

/** The same for drawn items: an edge or a folded group shows the flow of any of its parts. */
export function flowHighlights(scene: Scene, flow: Flow): { edges: Uint8Array; boxes: Uint8Array } {
  const { picture } = scene;
  const edges = new Uint8Array(picture.kind.length);
  for (let e = 0; e < edges.length; e += 1) {
    for (let b = picture.behindStart[e] as number; b < (picture.behindStart[e + 1] as number) && !edges[e]; b += 1)
      edges[e] = flow.edges[picture.behind[b] as number] as number;
  }
  const boxes = new Uint8Array(picture.item.length);
  flow.nodes.forEach((mark, node) => {
    if (!mark) return;
    const box = visibleBox(scene, node);
    if (box >= 0) boxes[box] ||= mark;
  });
  return { edges, boxes };
}

function crossing(graph: Graph, item: number, list: Adjacency, ends: Int32Array): number[] {
  const members = new Set(graph.below(item));
  return [...members].flatMap((node) =>
    [...entriesOf(list, node)].filter((edge) => !members.has(ends[edge] as number)),
  );
}

/** Edges into an item, and out of it. */
export const enteringEdges = (graph: Graph, item: number): number[] => crossing(graph, item, graph.inEdges, graph.src);
export const leavingEdges = (graph: Graph, item: number): number[] => crossing(graph, item, graph.outEdges, graph.dst);

/** Return the distinct neighbors of a selection, in the order of their edges. */
export function neighborItems(graph: Graph, item: number, direction: "in" | "out"): number[] {
  return [
    ...new Set(
      direction === "in"
        ? enteringEdges(graph, item).map((edge) => graph.src[edge] as number)
        : leavingEdges(graph, item).map((edge) => graph.dst[edge] as number),
    ),
  ];
}
