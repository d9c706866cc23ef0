// The open groups as a short text for the address, and changes of many groups at once.
import type { Graph } from "./graph";

/** Models up to this size are shown fully open. */
const SMALL_GRAPH = 60;
const ALL = "all";
const NONE = "none";

function allGroups(graph: Graph): number[] {
  return Array.from({ length: graph.groups }, (_, g) => graph.nodes + g);
}

/** Return the outermost groups of the model. A single group is opened. */
export function initialOpen(graph: Graph): Set<number> {
  if (graph.nodes <= SMALL_GRAPH) return new Set(allGroups(graph));
  const open = new Set([graph.root]);
  let at = graph.root;
  for (;;) {
    const groups: number[] = [...(graph.members[at - graph.nodes] ?? [])].filter((item) => graph.isGroup(item));
    const [only] = groups;
    if (groups.length !== 1 || only === undefined) return open;
    open.add(only);
    at = only;
  }
}

/** Return all groups down to a depth. */
export function openToLevel(graph: Graph, depth: number): Set<number> {
  return new Set(allGroups(graph).filter((item) => (graph.depth[item] ?? 0) <= depth));
}

/** Return the deepest level whose groups are all open. */
export function openLevel(graph: Graph, open: ReadonlySet<number>): number {
  const closed = allGroups(graph).filter((item) => !open.has(item));
  return closed.reduce((min, item) => Math.min(min, graph.depth[item] ?? 0), maxDepth(graph) + 1) - 1;
}

export function maxDepth(graph: Graph): number {
  return allGroups(graph).reduce((max, item) => Math.max(max, graph.depth[item] ?? 0), 0);
}

function same(a: ReadonlySet<number>, b: ReadonlySet<number>): boolean {
  return a.size === b.size && [...a].every((item) => b.has(item));
}

/**
 * Format the open groups: "" for the initial state, otherwise gaps between numbers in base 36, with runs as "gap-more".
 */
export function formatOpen(graph: Graph, open: ReadonlySet<number>): string {
  if (same(open, initialOpen(graph))) return "";
  if (open.size >= graph.groups) return ALL;
  const numbers = [...open]
    .map((item) => item - graph.nodes)
    .filter((g) => g > 0)
    .sort((a, b) => a - b);
  if (numbers.length === 0) return NONE;
  const parts: string[] = [];
  let last = 0;
  for (let i = 0; i < numbers.length;) {
    let run = 0;
    while (numbers[i + run + 1] === (numbers[i] ?? 0) + run + 1) run += 1;
    parts.push(((numbers[i] ?? 0) - last).toString(36) + (run > 0 ? `-${run.toString(36)}` : ""));
    last = (numbers[i] ?? 0) + run;
    i += run + 1;
  }
  return parts.join("~");
}

export function parseOpen(graph: Graph, text: string): Set<number> {
  if (text === "") return initialOpen(graph);
  if (text === ALL) return new Set(allGroups(graph));
  const open = new Set([graph.root]);
  if (text === NONE) return open;
  let last = 0;
  for (const part of text.split("~")) {
    const [gap = NaN, run = 0] = part.split("-").map((digits) => parseInt(digits, 36));
    if (!Number.isInteger(gap) || !Number.isInteger(run)) continue;
    for (let g = last + gap; g <= last + gap + run && g < graph.groups; g += 1) open.add(graph.nodes + g);
    last += gap + run;
  }
  return open;
}

/** Format an item for the address: n12 is a node, g3 a group. */
export function formatItem(graph: Graph, item: number): string {
  return item < 0 ? "" : graph.isGroup(item) ? `g${item - graph.nodes}` : `n${item}`;
}

export function parseItem(graph: Graph, text: string): number {
  const [, kind, digits] = /^([ng])(\d{1,7})$/.exec(text) ?? [];
  const number = Number(digits);
  if (kind === "n" && number < graph.nodes) return graph.item[number] ?? -1;
  return kind === "g" && number < graph.groups ? graph.nodes + number : -1;
}
