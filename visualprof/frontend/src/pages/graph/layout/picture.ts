// The laid-out groups as flat arrays in page units, which the worker sends to the canvas.
import { LEFT_RIGHT, type Direction } from "./direction";
import type { LaidOutGroup } from "./nested";
import { ENTRY, EXIT } from "./problem";

export interface Picture {
  direction: Direction;
  width: number;
  height: number;
  /** Boxes, outer ones first. */
  item: Int32Array;
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  open: Uint8Array;
  /** Box around each box; -1 for the outermost. */
  around: Int32Array;
  /** Edges: x, y pairs; the boxes at both ends, -1 if the edge crosses the border of an open group. */
  points: Float32Array;
  start: Int32Array;
  fork: Int32Array;
  kind: Uint8Array;
  from: Int32Array;
  to: Int32Array;
  behind: Int32Array;
  behindStart: Int32Array;
}

/** Array type of each column when it is sent. While columns grow, they are plain lists. */
const COLUMNS = {
  item: Int32Array,
  x: Float32Array,
  y: Float32Array,
  w: Float32Array,
  h: Float32Array,
  open: Uint8Array,
  around: Int32Array,
  points: Float32Array,
  start: Int32Array,
  fork: Int32Array,
  kind: Uint8Array,
  from: Int32Array,
  to: Int32Array,
  behind: Int32Array,
  behindStart: Int32Array,
} as const;
type Lists = Record<keyof typeof COLUMNS, number[]>;

function addGroup(lists: Lists, laid: LaidOutGroup, atX: number, atY: number, around: number, turned: boolean): void {
  const { solution, members, problem, inside } = laid;
  const [left, top] = [atX + laid.left, atY + laid.top];
  const first = lists.item.length;
  members.forEach((member, i) => {
    lists.item.push(member);
    lists.x.push(left + (turned ? (solution.y[i] as number) : (solution.x[i] as number)));
    lists.y.push(top + (turned ? (solution.x[i] as number) : (solution.y[i] as number)));
    lists.w.push(turned ? (problem.height[i] as number) : (problem.width[i] as number));
    lists.h.push(turned ? (problem.width[i] as number) : (problem.height[i] as number));
    lists.open.push(inside.has(member) ? 1 : 0);
    lists.around.push(around);
  });
  for (let e = 0; e < problem.tail.length; e += 1) addEdge(lists, laid, e, first, left, top, turned, atX, atY);
  members.forEach((member, i) => {
    const group = inside.get(member);
    if (group) addGroup(lists, group, lists.x[first + i] as number, lists.y[first + i] as number, first + i, turned);
  });
}

function addEdge(
  lists: Lists,
  laid: LaidOutGroup,
  e: number,
  first: number,
  left: number,
  top: number,
  turned: boolean,
  atX: number,
  atY: number,
): void {
  const { solution, members, problem, behind, behindStart } = laid;
  const { points, start } = solution;
  const [from, to] = [problem.tail[e] as number, problem.head[e] as number];
  const begin = lists.points.length;
  for (let p = start[e] as number; p < (start[e + 1] as number); p += 2) {
    const [across, along] = [points[p] as number, points[p + 1] as number];
    lists.points.push(left + (turned ? along : across), top + (turned ? across : along));
  }
  const end = lists.points.length;
  // Entries and exits extend to the border of the box.
  const along = turned ? 0 : 1;
  if (problem.role[from] === ENTRY) lists.points[begin + along] = turned ? atX : atY;
  if (problem.role[to] === EXIT) lists.points[end - 2 + along] = turned ? atX + laid.width : atY + laid.height;
  lists.start.push(end);
  lists.fork.push(solution.fork[e] as number);
  lists.kind.push(solution.kind[e] as number);
  lists.from.push(from < members.length ? first + from : -1);
  lists.to.push(to < members.length ? first + to : -1);
  for (let b = behindStart[e] as number; b < (behindStart[e + 1] as number); b += 1)
    lists.behind.push(behind[b] as number);
  lists.behindStart.push(lists.behind.length);
}

export function buildPicture(root: LaidOutGroup, direction: Direction): Picture {
  const lists = Object.fromEntries(
    Object.keys(COLUMNS).map((name) => [name, name === "start" || name === "behindStart" ? [0] : []]),
  ) as unknown as Lists;
  addGroup(lists, root, 0, 0, -1, direction === LEFT_RIGHT);
  const columns = Object.entries(COLUMNS).map(([name, array]) => [name, array.from(lists[name as keyof Lists])]);
  return {
    direction,
    width: root.width,
    height: root.height,
    ...(Object.fromEntries(columns) as Omit<Picture, "direction" | "width" | "height">),
  };
}
