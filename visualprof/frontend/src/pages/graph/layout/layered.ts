// Layered layout (Sugiyama, Tagawa and Toda 1981) in near-linear time: cycles, ranks, hubs, order, columns, routes.
import {
  closeRanks,
  componentProblem,
  findComponents,
  packComponents,
  type Component,
  type Size,
} from "./connected-components";
import { assignColumns } from "./columns";
import { edgeKinds } from "./hubs";
import { orderRanks } from "./order";
import { ENTRY, EXIT, PLAIN, STUB, stubRoom, type Problem, type Solution } from "./problem";
import { backEdges, outgoingEdges, assignRanks } from "./ranks";
import { routeEdges, type EdgeRoute } from "./route";
import { cutIntoSegments, type Segments } from "./segments";

/** In a rank much taller than itself, an item stays near its producers. */
const MAX_CENTERED = 60;

/** Space between the border of a group and its first and last rank. */
const ENTRY_SPACING_SHARE = 0.5;
/** Share of the horizontal distance of an edge. */
const BEND_ROOM = 0.07;
const MAX_ROOM = 60;

interface LayoutPart extends Size {
  x: Float64Array;
  y: Float64Array;
  routes: EdgeRoute[];
  kind: Uint8Array;
}

function ranksHeights(
  problem: Problem,
  rank: Int32Array,
  segments: Segments,
  middle: Float64Array,
): { top: Float64Array; bottom: Float64Array } {
  let ranks = 0;
  for (const r of rank) ranks = Math.max(ranks, r + 1);
  const rankHeight = new Float64Array(ranks);
  const leaves = rank.some((r, item) => r === ranks - 1 && problem.role[item] === EXIT);
  const hasEntry = rank.some((_, item) => problem.role[item] === ENTRY);
  rank.forEach((r, item) => (rankHeight[r] = Math.max(rankHeight[r] as number, problem.height[item] as number)));
  // Edges with a large horizontal distance get more space to bend.
  const aside = new Float64Array(ranks);
  segments.upper.forEach((a, i) => {
    const r = segments.rank[a] as number;
    const reach = Math.abs(
      (middle[a] as number) +
        (segments.upperOffset[i] as number) -
        (middle[segments.lower[i] as number] as number) -
        (segments.lowerOffset[i] as number),
    );
    aside[r] = Math.max(aside[r] as number, reach);
  });
  const top = new Float64Array(ranks);
  const bottom = new Float64Array(ranks);
  let y = 0;
  for (let r = 0; r < ranks; r += 1) {
    top[r] = y;
    y += rankHeight[r] as number;
    bottom[r] = y;
    // Entries and exits need no space for text.
    const isBorder = (hasEntry && r === 0) || (r === ranks - 2 && leaves);
    y +=
      problem.spacing.rank * (isBorder ? ENTRY_SPACING_SHARE : 1) +
      Math.min(MAX_ROOM, (aside[r] as number) * BEND_ROOM);
  }
  return { top, bottom };
}

/** A connected component. */
function layPart(problem: Problem, rank: Int32Array): LayoutPart {
  const kind = new Uint8Array(problem.tail.length).fill(PLAIN);
  const segments = cutIntoSegments(problem, kind, rank);
  const order = orderRanks(segments);
  const middle = assignColumns(segments, order, problem.spacing);
  let [low, high] = [Infinity, -Infinity];
  segments.width.forEach((width, v) => {
    low = Math.min(low, (middle[v] as number) - width / 2);
    high = Math.max(high, (middle[v] as number) + width / 2);
  });
  for (let v = 0; v < middle.length; v += 1) middle[v] = Math.round(((middle[v] as number) - low) * 4) / 4;
  const { top, bottom } = ranksHeights(problem, rank, segments, middle);
  const y = Float64Array.from(
    rank,
    (r, item) =>
      (top[r] as number) +
      Math.min(MAX_CENTERED, ((bottom[r] as number) - (top[r] as number) - (problem.height[item] as number)) / 2),
  );
  const routes = routeEdges(problem, segments, kind, { middle, y, rankTop: top, rankBottom: bottom });
  const x = Float64Array.from(rank, (_, item) => (middle[item] as number) - (problem.width[item] as number) / 2);
  return { x, y, routes, kind, width: high - low, height: bottom[bottom.length - 1] ?? 0 };
}

/** Items with labels next to them are wider; their own center is right of the common center. */
function withStubRoom(problem: Problem, kind: Uint8Array): Problem {
  const stubs = new Int32Array(problem.width.length);
  for (let e = 0; e < kind.length; e += 1)
    if (kind[e] === STUB) stubs[problem.head[e] as number] = (stubs[problem.head[e] as number] as number) + 1;
  const room = Float64Array.from(stubs, (n) => stubRoom(problem.spacing, n));
  return {
    ...problem,
    room,
    width: problem.width.map((width, item) => width + (room[item] as number)),
    tailOffset: problem.tailOffset.map((offset, e) => offset + (room[problem.tail[e] as number] as number) / 2),
    headOffset: problem.headOffset.map((offset, e) => offset + (room[problem.head[e] as number] as number) / 2),
  };
}

function join(
  fullProblem: Problem,
  parts: readonly Component[],
  laid: readonly LayoutPart[],
  kind: Uint8Array,
  room: Float64Array,
): Solution {
  const at = packComponents(parts, laid, 1.6 * fullProblem.spacing.item);
  const count = fullProblem.width.length;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  const lines: (EdgeRoute | undefined)[] = new Array<EdgeRoute | undefined>(kind.length);
  let [width, height] = [0, 0];
  parts.forEach((part, i) => {
    const layout = laid[i] as LayoutPart;
    const { x: left, y: top } = at[i] as { x: number; y: number };
    width = Math.max(width, left + layout.width);
    height = Math.max(height, top + layout.height);
    part.items.forEach((item, j) => {
      x[item] = (layout.x[j] as number) + left + (room[item] as number);
      y[item] = (layout.y[j] as number) + top;
    });
    part.edges.forEach((e, j) => {
      const route = layout.routes[j] as EdgeRoute;
      for (let p = 0; p < route.points.length; p += 2) {
        route.points[p] = (route.points[p] as number) + left;
        route.points[p + 1] = (route.points[p + 1] as number) + top;
      }
      lines[e] = route;
      kind[e] = layout.kind[j] as number;
    });
  });
  placeEntriesAndExits(fullProblem, y, height, lines);
  const start = new Int32Array(kind.length + 1);
  const fork = new Int32Array(kind.length);
  const points: number[] = [];
  for (let e = 0; e < kind.length; e += 1) {
    const line = lines[e] ?? { points: directRoute(fullProblem, x, y, e), fork: 0 };
    for (const value of line.points) points.push(value);
    fork[e] = line.fork;
    start[e + 1] = points.length;
  }
  return { width, height, x, y, kind, points: Float64Array.from(points), start, fork };
}

/** Place all exits at the lower border, whatever the height of their component. */
function placeEntriesAndExits(
  fullProblem: Problem,
  y: Float64Array,
  height: number,
  lines: (EdgeRoute | undefined)[],
): void {
  fullProblem.role.forEach((role, item) => {
    if (role === EXIT) y[item] = height;
    if (role === ENTRY) y[item] = 0;
  });
  lines.forEach((line, e) => {
    if (line && fullProblem.role[fullProblem.head[e] as number] === EXIT) line.points[line.points.length - 1] = height;
  });
}

/** Return the points of an edge that crosses no ranks: from border to border. */
function directRoute(fullProblem: Problem, x: Float64Array, y: Float64Array, e: number): number[] {
  const [from, to] = [fullProblem.tail[e] as number, fullProblem.head[e] as number];
  const middle = (item: number, offset: number) =>
    (x[item] as number) + (fullProblem.width[item] as number) / 2 + offset;
  return [
    middle(from, fullProblem.tailOffset[e] as number),
    (y[from] as number) + (fullProblem.height[from] as number),
    middle(to, fullProblem.headOffset[e] as number),
    y[to] as number,
  ];
}

export function solve(fullProblem: Problem): Solution {
  const outgoing = outgoingEdges(fullProblem);
  const back = backEdges(fullProblem, outgoing);
  const rank = assignRanks(fullProblem, outgoing, back);
  const kind = edgeKinds(fullProblem, outgoing, back, rank);
  const problem = withStubRoom(fullProblem, kind);
  const parts = findComponents(problem, kind);
  const laid = parts.map((part) =>
    layPart(componentProblem(problem, part), closeRanks(Int32Array.from(part.items, (item) => rank[item] as number))),
  );
  return join(fullProblem, parts, laid, kind, problem.room);
}
