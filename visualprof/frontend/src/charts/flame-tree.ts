// The frames of a flame graph as columns, matched with the frames of a base, and their layout.
import type { Columns } from "../api";

export interface Tree {
  name: readonly string[];
  parent: readonly number[];
  depth: readonly number[];
  calls: readonly number[];
  self: readonly number[];
  total: readonly number[];
  event: readonly number[];
  inner: readonly (readonly number[])[];
  roots: readonly number[];
  whole: number;
}

/** Per frame, the time of the frame with the same path in another tree, per step if both have steps. */
export type Base = readonly number[];

export interface Layout {
  /** Left edge and width of each frame, as shares of 1. */
  x: Float64Array;
  width: Float64Array;
  /** Frames of each depth, from left to right. */
  rows: readonly (readonly number[])[];
}

const numbers = (columns: Columns, name: string) => (columns[name] ?? []) as number[];

export function buildTree(columns: Columns): Tree {
  const [parent, total] = [numbers(columns, "parent"), numbers(columns, "total_ns")];
  const inner: number[][] = parent.map(() => []);
  const roots: number[] = [];
  parent.forEach((above, frame) => (inner[above] ?? roots).push(frame));
  return {
    name: (columns["name"] ?? []) as string[],
    parent,
    depth: numbers(columns, "depth"),
    calls: numbers(columns, "calls"),
    self: numbers(columns, "self_ns"),
    total,
    event: numbers(columns, "event"),
    inner,
    roots,
    whole: roots.reduce((sum, frame) => sum + (total[frame] ?? 0), 0),
  };
}

/**
 * Return the part of a name that does not change when a line is inserted above it or a module is added to its class.
 */
const stableName = (name: string) => name.replace(/_\d+$/, "").replace(/\(\d+\): /, ": ");

/**
 * Return, for each frame, the time of its counterpart in the base. Frames that only the base has are missing; swap the
 * trees to find them. `scale`: factor for the base's times.
 */
export function matchBase(tree: Tree, base: Tree, scale: number): Base {
  const matched = new Array<number>(tree.name.length).fill(0);
  const pair = (frame: number, other: number): void => {
    matched[frame] = (base.total[other] ?? 0) * scale;
    follow(tree.inner[frame] ?? [], base.inner[other] ?? []);
  };
  const follow = (frames: readonly number[], others: readonly number[]): void => {
    let [currentCalls, theirs] = [groupByCall(tree, frames), groupByCall(base, others)];
    for (const key of [(name: string) => name, stableName]) {
      const byName = new Map<string, number[]>();
      for (const other of theirs)
        byName.set(key(base.name[other] ?? ""), [...(byName.get(key(base.name[other] ?? "")) ?? []), other]);
      const taken = new Set<number>();
      currentCalls = currentCalls.filter((frame) => {
        const other = byName.get(key(tree.name[frame] ?? ""))?.shift();
        if (other === undefined) return true;
        taken.add(other);
        pair(frame, other);
        return false;
      });
      theirs = theirs.filter((other) => !taken.has(other));
    }
    // One run may have an additional frame in between.
    const [frame, other] = [
      currentCalls.length === 1 ? currentCalls[0] : undefined,
      theirs.length === 1 ? theirs[0] : undefined,
    ];
    if (frame !== undefined && theirs.length > 0 && sameInside(tree, frame, base, theirs)) {
      follow(tree.inner[frame] ?? [], theirs);
      matched[frame] = (tree.inner[frame] ?? []).reduce((sum, child) => sum + (matched[child] ?? 0), 0);
    } else if (other !== undefined && currentCalls.length > 0 && sameInside(base, other, tree, currentCalls))
      follow(currentCalls, base.inner[other] ?? []);
  };
  follow(tree.roots, base.roots);
  return matched;
}

/** Whether a frame calls any of the given frames of the other tree. */
function sameInside(tree: Tree, frame: number, other: Tree, frames: readonly number[]): boolean {
  const inside = new Set((tree.inner[frame] ?? []).map((child) => stableName(tree.name[child] ?? "")));
  return frames.some((candidate) => inside.has(stableName(other.name[candidate] ?? "")));
}

/** Group the frames of a caller in the order of their first calls; grouped ones come last. */
function groupByCall(tree: Tree, frames: readonly number[]): number[] {
  const when = (frame: number) => ((tree.event[frame] ?? -1) < 0 ? Infinity : (tree.event[frame] ?? 0));
  return [...frames].sort((a, b) => (when(a) === when(b) ? a - b : when(a) - when(b)));
}

/** `heavy`: sort the frames of a caller by time, otherwise by their first calls. */
export function layOutFrames(tree: Tree, heavy: boolean): Layout {
  const x = new Float64Array(tree.name.length);
  const width = new Float64Array(tree.name.length);
  const rows: number[][] = [];
  const layOut = (frames: readonly number[], from: number, row: number): void => {
    // The server sorts by time.
    const order = heavy ? frames : groupByCall(tree, frames);
    let left = from;
    for (const frame of order) {
      x[frame] = left;
      width[frame] = (tree.total[frame] ?? 0) / (tree.whole || 1);
      (rows[row] ??= []).push(frame);
      layOut(tree.inner[frame] ?? [], left, row + 1);
      left += width[frame] ?? 0;
    }
  };
  layOut(tree.roots, 0, 0);
  return { x, width, rows };
}

export function framePath(tree: Tree, frame: number): number[] {
  const path: number[] = [];
  for (let at = frame; at >= 0; at = tree.parent[at] ?? -1) path.unshift(at);
  return path;
}

export interface SearchMatches {
  frames: ReadonlySet<number>;
  /** The share of these frames in the total time. */
  share: number;
}

export function search(tree: Tree, text: string): SearchMatches {
  const needle = text.toLowerCase();
  const frames = new Set(tree.name.flatMap((name, frame) => (name.toLowerCase().includes(needle) ? [frame] : [])));
  let time = 0;
  for (const frame of frames)
    if (!framePath(tree, tree.parent[frame] ?? -1).some((above) => frames.has(above))) time += tree.total[frame] ?? 0;
  return { frames, share: time / (tree.whole || 1) };
}
