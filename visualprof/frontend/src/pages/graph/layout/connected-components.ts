// Components that no drawn edge connects are laid out separately and placed side by side. A single row of unconnected
// nodes would be extremely wide.
import { INNER, PLAIN, type Problem } from "./problem";

export interface Component {
  /** Items and edges of the whole problem. */
  items: number[];
  edges: number[];
  /** Whether it contains an entry or exit of the group, which must be at its border. */
  atBorder: boolean;
}

export function findComponents(problem: Problem, kind: Uint8Array): Component[] {
  const { tail, head, role } = problem;
  const parent = Int32Array.from({ length: role.length }, (_, item) => item);
  const top = (item: number): number => {
    let at = item;
    while (parent[at] !== at) {
      parent[at] = parent[parent[at] as number] as number;
      at = parent[at] as number;
    }
    return at;
  };
  for (let e = 0; e < kind.length; e += 1) {
    if (kind[e] !== PLAIN) continue;
    const [a, b] = [top(tail[e] as number), top(head[e] as number)];
    parent[Math.max(a, b)] = Math.min(a, b);
  }
  const parts = new Map<number, Component>();
  for (let item = 0; item < role.length; item += 1) {
    const key = top(item);
    const part = parts.get(key) ?? { items: [], edges: [], atBorder: false };
    parts.set(key, part);
    part.items.push(item);
    part.atBorder ||= role[item] !== INNER;
  }
  for (let e = 0; e < kind.length; e += 1) {
    if (kind[e] === PLAIN) parts.get(top(tail[e] as number))?.edges.push(e);
  }
  return [...parts.values()];
}

export interface Size {
  width: number;
  height: number;
}

/**
 * Return upper left corners: components at the border in one row from the first rank, the others in rows next to them.
 */
export function packComponents(
  parts: readonly Component[],
  sizes: readonly Size[],
  gap: number,
): { x: number; y: number }[] {
  const at: { x: number; y: number }[] = parts.map(() => ({ x: 0, y: 0 }));
  let x = 0;
  let tallest = 0;
  let area = 0;
  const loose: number[] = [];
  parts.forEach((part, i) => {
    const size = sizes[i] as Size;
    if (!part.atBorder) {
      loose.push(i);
      area += (size.width + gap) * (size.height + gap);
      return;
    }
    at[i] = { x, y: 0 };
    x += size.width + gap;
    tallest = Math.max(tallest, size.height);
  });
  const widest = loose.reduce((max, i) => Math.max(max, (sizes[i] as Size).width), 0);
  const rowWidth = Math.max(widest, Math.min(Math.sqrt(area * 1.6), tallest > 0 ? area / tallest + widest : Infinity));
  let [left, y, row] = [0, 0, 0];
  for (const i of loose) {
    const size = sizes[i] as Size;
    if (left > 0 && left + size.width > rowWidth) [left, y, row] = [0, y + row + gap, 0];
    at[i] = { x: x + left, y };
    left += size.width + gap;
    row = Math.max(row, size.height);
  }
  return at;
}

/** Return the component as a problem of its own. */
export function componentProblem(problem: Problem, part: Component): Problem {
  const local = new Map(part.items.map((item, i) => [item, i]));
  const ofItems = (values: Float64Array) => Float64Array.from(part.items, (item) => values[item] as number);
  const ofEdges = (values: Float64Array) => Float64Array.from(part.edges, (e) => values[e] as number);
  return {
    width: ofItems(problem.width),
    height: ofItems(problem.height),
    role: Uint8Array.from(part.items, (item) => problem.role[item] as number),
    room: ofItems(problem.room),
    tail: Int32Array.from(part.edges, (e) => local.get(problem.tail[e] as number) ?? 0),
    head: Int32Array.from(part.edges, (e) => local.get(problem.head[e] as number) ?? 0),
    slot: Int32Array.from(part.edges, (e) => problem.slot[e] as number),
    tailOffset: ofEdges(problem.tailOffset),
    headOffset: ofEdges(problem.headOffset),
    spacing: problem.spacing,
  };
}

/** Renumber ranks from 0 without gaps, which belonged to other components. */
export function closeRanks(rank: Int32Array): Int32Array {
  const usedRanks = [...new Set(rank)].sort((a, b) => a - b);
  const closed = new Map(usedRanks.map((r, i) => [r, i]));
  return rank.map((r) => closed.get(r) ?? 0);
}
