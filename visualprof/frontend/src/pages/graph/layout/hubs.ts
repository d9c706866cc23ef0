// Edges that would be lines across the whole picture are replaced by labels at their consumers.
import { groupByKey, type Adjacency } from "./adjacency";
import { BACK, EXIT, ENTRY, PLAIN, STUB, type Problem } from "./problem";

/** A source is a hub with this many consumers ... */
const MIN_CONSUMERS = 5;
/** ... over this many ranks. A consumer of this many long edges is also a hub. */
const LONG_SPAN = 16;
const MIN_PRODUCERS = 12;
/** Edges up to this length stay visible even at a hub. */
const NEAR_SPAN = 4;

export function edgeKinds(problem: Problem, outgoing: Adjacency, back: Uint8Array, rank: Int32Array): Uint8Array {
  const { tail, head, role } = problem;
  const kind = new Uint8Array(head.length);
  const length = (edge: number) => (rank[head[edge] as number] as number) - (rank[tail[edge] as number] as number);
  for (let e = 0; e < kind.length; e += 1) kind[e] = back[e] ? BACK : PLAIN;
  const hide = (edge: number, minCount: number) => {
    if (kind[edge] === PLAIN && length(edge) > minCount && role[head[edge] as number] !== EXIT) kind[edge] = STUB;
  };
  for (let item = 0; item < role.length; item += 1) {
    const edges = outgoing.list.subarray(outgoing.start[item], outgoing.start[item + 1]);
    if (edges.length < MIN_CONSUMERS) continue;
    let first = Infinity;
    let last = -Infinity;
    for (const edge of edges) {
      if (kind[edge] !== PLAIN) continue;
      first = Math.min(first, rank[head[edge] as number] as number);
      last = Math.max(last, rank[head[edge] as number] as number);
    }
    if (last - first >= LONG_SPAN) for (const edge of edges) hide(edge, role[item] === ENTRY ? 0 : NEAR_SPAN);
  }
  const incoming = groupByKey(head, role.length);
  for (let item = 0; item < role.length; item += 1) {
    const edges = incoming.list.subarray(incoming.start[item], incoming.start[item + 1]);
    if (edges.length < MIN_PRODUCERS) continue;
    const long = edges.filter((edge) => kind[edge] === PLAIN && length(edge) >= LONG_SPAN);
    if (long.length >= MIN_PRODUCERS) for (const edge of long) hide(edge, NEAR_SPAN);
  }
  return kind;
}
