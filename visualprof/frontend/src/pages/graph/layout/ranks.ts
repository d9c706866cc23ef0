// Finds edges against the flow, and assigns a rank to every item.
import { entriesOf, groupByKey, type Adjacency } from "./adjacency";
import { ENTRY, EXIT, type Problem } from "./problem";

/** Mark the edges that close a cycle: those to an item on the current path of a depth-first search. */
export function backEdges(problem: Problem, outgoing: Adjacency): Uint8Array {
  const { tail, head } = problem;
  const count = problem.width.length;
  const back = new Uint8Array(tail.length);
  const state = new Uint8Array(count);
  const next = outgoing.start.slice(0, count);
  const incoming = new Int32Array(count);
  for (let e = 0; e < head.length; e += 1) incoming[head[e] as number] = (incoming[head[e] as number] as number) + 1;
  const path: number[] = [];
  const walk = (from: number) => {
    if (state[from] !== 0) return;
    path.push(from);
    state[from] = 1;
    while (path.length > 0) {
      const item = path[path.length - 1] as number;
      const slot = next[item] as number;
      if (slot === (outgoing.start[item + 1] as number)) {
        state[item] = 2;
        path.pop();
        continue;
      }
      next[item] = slot + 1;
      const edge = outgoing.list[slot] as number;
      const target = head[edge] as number;
      if (state[target] === 1) back[edge] = 1;
      else if (state[target] === 0) {
        state[target] = 1;
        path.push(target);
      }
    }
  };
  // Start at the true sources, so that a loop is entered where the data enters it.
  for (let item = 0; item < count; item += 1) if (incoming[item] === 0) walk(item);
  for (let item = 0; item < count; item += 1) walk(item);
  return back;
}

function topological(problem: Problem, outgoing: Adjacency, back: Uint8Array): Int32Array {
  const { head } = problem;
  const count = problem.width.length;
  const waiting = new Int32Array(count);
  for (let e = 0; e < head.length; e += 1)
    if (!back[e]) waiting[head[e] as number] = (waiting[head[e] as number] as number) + 1;
  const order = new Int32Array(count);
  let filled = 0;
  for (let item = 0; item < count; item += 1) if (waiting[item] === 0) order[filled++] = item;
  for (let done = 0; done < filled; done += 1) {
    const item = order[done] as number;
    for (const edge of entriesOf(outgoing, item)) {
      if (back[edge]) continue;
      const target = head[edge] as number;
      waiting[target] = (waiting[target] as number) - 1;
      if (waiting[target] === 0) order[filled++] = target;
    }
  }
  return order;
}

/** Assign the longest path from the sources; then move items that only feed late consumers down to them. */
export function assignRanks(problem: Problem, outgoing: Adjacency, back: Uint8Array): Int32Array {
  const { head, role } = problem;
  const count = role.length;
  const order = topological(problem, outgoing, back);
  const first = role.includes(ENTRY) ? 1 : 0;
  const rank = new Int32Array(count);
  for (let item = 0; item < count; item += 1) rank[item] = role[item] === ENTRY ? 0 : first;
  for (const item of order) {
    for (const edge of entriesOf(outgoing, item)) {
      const target = head[edge] as number;
      if (!back[edge] && (rank[target] as number) <= (rank[item] as number)) rank[target] = (rank[item] as number) + 1;
    }
  }
  pullDown(rank, problem, outgoing, back, order);
  let last = 0;
  for (let item = 0; item < count; item += 1) if (role[item] !== EXIT) last = Math.max(last, rank[item] as number);
  for (let item = 0; item < count; item += 1) if (role[item] === EXIT) rank[item] = last + 1;
  return rank;
}

/**
 * Move an item next to its first consumer if that shortens more edges than it lengthens. Producers that only feed it
 * move along.
 */
function pullDown(rank: Int32Array, problem: Problem, outgoing: Adjacency, back: Uint8Array, order: Int32Array): void {
  const { head, role } = problem;
  const count = role.length;
  const into = new Int32Array(count);
  const out = new Int32Array(count);
  const captive = new Uint8Array(count).fill(1);
  for (const item of order) {
    const edges = entriesOf(outgoing, item);
    for (const edge of edges) if (!back[edge]) out[item] = (out[item] as number) + 1;
    const alone = captive[item] === 1 && out[item] === 1 && role[item] !== ENTRY;
    for (const edge of edges) {
      if (back[edge]) continue;
      const target = head[edge] as number;
      into[target] = (into[target] as number) + 1;
      if (!alone) captive[target] = 0;
    }
  }
  for (let i = order.length - 1; i >= 0; i -= 1) {
    const item = order[i] as number;
    if (role[item] !== 0 || out[item] === 0 || !(captive[item] === 1 || (out[item] as number) > (into[item] as number)))
      continue;
    let lowest = Infinity;
    for (const edge of entriesOf(outgoing, item)) {
      // The exit of the group is always last and attracts no items.
      if (!back[edge] && role[head[edge] as number] !== EXIT)
        lowest = Math.min(lowest, rank[head[edge] as number] as number);
    }
    if (lowest !== Infinity && lowest - 1 > (rank[item] as number)) rank[item] = lowest - 1;
  }
}

export function outgoingEdges(problem: Problem): Adjacency {
  return groupByKey(problem.tail, problem.width.length);
}
