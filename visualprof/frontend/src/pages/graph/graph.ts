// The graph as numbers: nodes are items 0 .. n-1, groups are items n .. n+g-1. Lists follow their groups.
// A node with bodies (If, Loop, a call) is drawn as the group of its bodies: it is below that group, but not a member
// of it.
import { entriesOf, groupByKey, type Adjacency } from "./layout/adjacency";
import type { GraphAnswer } from "../../api/graph";

export class Graph {
  readonly nodes: number;
  readonly groups: number;
  readonly root: number;
  /** Group item above each item; -1 above the root. */
  readonly parent: Int32Array;
  readonly depth: Int32Array;
  /** Members of each group: nodes and groups in the order of their first node in the model. */
  readonly members: Int32Array[];
  readonly src: Int32Array;
  readonly dst: Int32Array;
  /**
   * What an edge carries: its source or, after all node numbers, a value with several producers, such as the branches
   * of an If.
   */
  readonly origin: Int32Array;
  readonly outEdges: Adjacency;
  readonly inEdges: Adjacency;
  /** Edges with an end in each group. */
  private readonly touching: Adjacency;
  private readonly touchingEdges: Int32Array;
  /** Number of groups with the same structure as each group, including itself. */
  readonly twins: Int32Array;
  /** The item that is drawn for each node: itself, or its group. */
  readonly item: Int32Array;

  constructor(readonly answer: GraphAnswer) {
    const { groups, nodes, edges } = answer;
    this.nodes = nodes.name.length;
    this.groups = groups.name.length;
    this.root = this.nodes;
    const items = this.nodes + this.groups;
    this.parent = new Int32Array(items);
    this.depth = new Int32Array(items);
    groups.parent.forEach((above, g) => {
      this.parent[this.nodes + g] = above < 0 ? -1 : this.nodes + above;
      this.depth[this.nodes + g] = above < 0 ? 0 : (this.depth[this.nodes + above] as number) + 1;
    });
    nodes.group.forEach((g, n) => {
      this.parent[n] = this.nodes + g;
      this.depth[n] = (this.depth[this.nodes + g] as number) + 1;
    });
    this.item = Int32Array.from(nodes.group, (_, n) => n);
    groups.node.forEach((node, g) => node !== null && (this.item[node] = this.nodes + g));
    this.members = this.listMembers();
    this.src = Int32Array.from(edges.src);
    this.dst = Int32Array.from(edges.dst);
    const maker = new Map<number, number>();
    edges.value.forEach((value, e) =>
      maker.set(value, (maker.get(value) ?? edges.src[e]) === edges.src[e] ? (edges.src[e] as number) : -1),
    );
    this.origin = this.src.map((source, e) =>
      maker.get(edges.value[e] as number) === -1 ? this.nodes + (edges.value[e] as number) : source,
    );
    this.outEdges = groupByKey(this.src, this.nodes);
    this.inEdges = groupByKey(this.dst, this.nodes);
    const [keys, edgesOf] = this.edgeGroups();
    this.touching = groupByKey(keys, this.groups);
    this.touchingEdges = edgesOf;
    const like = new Int32Array(this.groups);
    groups.twin.forEach((templateId) => (like[templateId] = (like[templateId] as number) + 1));
    this.twins = Int32Array.from(groups.twin, (templateId) => like[templateId] as number);
  }

  private listMembers(): Int32Array[] {
    const items = this.nodes + this.groups;
    const first = new Int32Array(items).fill(items);
    for (let n = 0; n < this.nodes; n += 1) {
      for (let item = n; item >= 0; item = this.parent[item] as number) {
        if ((first[item] as number) <= n) break;
        first[item] = n;
      }
    }
    const lists: number[][] = Array.from({ length: this.groups }, () => []);
    for (let item = 0; item < items; item += 1)
      if ((this.parent[item] as number) >= 0 && (this.item[item] ?? item) === item)
        lists[(this.parent[item] as number) - this.nodes]?.push(item);
    return lists.map((list) =>
      Int32Array.from(list.sort((a, b) => (first[a] as number) - (first[b] as number) || a - b)),
    );
  }

  private edgeGroups(): [keys: number[], edges: Int32Array] {
    const keys: number[] = [];
    const edges: number[] = [];
    const lastGroup = new Int32Array(this.groups).fill(-1);
    for (let e = 0; e < this.src.length; e += 1) {
      for (const end of [this.src[e] as number, this.dst[e] as number]) {
        for (let g = this.parent[end] as number; g >= 0; g = this.parent[g] as number) {
          if (lastGroup[g - this.nodes] === e) break;
          lastGroup[g - this.nodes] = e;
          keys.push(g - this.nodes);
          edges.push(e);
        }
      }
    }
    return [keys, Int32Array.from(edges)];
  }

  isGroup(item: number): boolean {
    return item >= this.nodes;
  }

  /** Return the edges with an end in this group, given as an item. */
  edgesAt(group: number): Int32Array {
    return entriesOf(this.touching, group - this.nodes).map((slot) => this.touchingEdges[slot] as number);
  }

  /** Return the node that a group represents, or -1. */
  nodeOf(item: number): number {
    return this.isGroup(item) ? (this.answer.groups.node[item - this.nodes] ?? -1) : item;
  }

  /** Return the member of `group` that is or contains `item`; -1 if it is outside, or the group itself. */
  memberAbove(item: number, group: number): number {
    const childDepth = (this.depth[group] as number) + 1;
    let at = item;
    while ((this.depth[at] as number) > childDepth) at = this.parent[at] as number;
    return this.parent[at] === group && this.item[at] !== group ? at : -1;
  }

  /** Return the item drawn for `item`: itself, or the outermost folded group around it. */
  shown(item: number, open: ReadonlySet<number>): number {
    let best = this.item[item] ?? item;
    for (let at = this.parent[best] as number; at >= 0; at = this.parent[at] as number) if (!open.has(at)) best = at;
    return best;
  }

  /** Return the groups around an item, innermost first. */
  around(item: number): number[] {
    const out: number[] = [];
    for (let at = this.parent[item] as number; at >= 0; at = this.parent[at] as number) out.push(at);
    return out;
  }

  /** Return all nodes below an item, including those that are groups. */
  below(item: number): number[] {
    const out: number[] = [];
    const open = [item];
    while (open.length > 0) {
      const at = open.pop() as number;
      if (this.nodeOf(at) >= 0) out.push(this.nodeOf(at));
      if (this.isGroup(at)) open.push(...(this.members[at - this.nodes] ?? []));
    }
    return out;
  }
}
