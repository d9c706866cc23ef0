// One open group as a layout problem: its members, the edges between them, and an entry or exit for each value that
// crosses its border.
import type { Graph } from "../graph";
import { ENTRY, EXIT, INNER, type Problem } from "./problem";
import { LEFT_RIGHT, spacingFor, type Direction } from "./direction";

/** An open member, with the positions where edges cross its border (from its center), by the value they carry. */
export interface OpenGroup {
  width: number;
  height: number;
  entries: ReadonlyMap<number, number>;
  exits: ReadonlyMap<number, number>;
}

export interface GroupProblem {
  problem: Problem;
  members: Int32Array;
  /** The value of each entry and exit; these items follow the members. */
  ways: number[];
  /** Original edges of drawn edge e: behind[start[e]] .. behind[start[e + 1] - 1]. */
  behind: Int32Array;
  behindStart: Int32Array;
}

const ENTRY_WIDTH = 8;

export function buildProblem(
  graph: Graph,
  group: number,
  sizes: { width: Float64Array; height: Float64Array },
  open: ReadonlyMap<number, OpenGroup>,
  direction: Direction,
): GroupProblem {
  const members = graph.members[group - graph.nodes] ?? new Int32Array(0);
  const local = new Map<number, number>();
  members.forEach((item, i) => local.set(item, i));
  const borderItems: number[] = [];
  const wayRoles: number[] = [];
  const wayAt = new Map<number, number>();
  const borderItem = (source: number, role: typeof ENTRY | typeof EXIT) => {
    const key = source * 2 + (role === ENTRY ? 0 : 1);
    const existing = wayAt.get(key);
    if (existing !== undefined) return existing;
    wayRoles.push(role);
    const at = members.length + borderItems.push(source) - 1;
    wayAt.set(key, at);
    return at;
  };
  const tail: number[] = [];
  const head: number[] = [];
  const slot: number[] = [];
  const tailOffset: number[] = [];
  const headOffset: number[] = [];
  const behind: number[][] = [];
  const edgeByKey = new Map<string, number>();
  const slots = new Map<number, number>();
  const stride = graph.nodes + graph.answer.values.name.length + 1;
  for (const e of graph.edgesAt(group)) {
    const [source, target] = [graph.src[e] as number, graph.dst[e] as number];
    const [fromItem, toItem] = [graph.memberAbove(source, group), graph.memberAbove(target, group)];
    if (fromItem === toItem) continue;
    const origin = graph.origin[e] as number;
    const from = fromItem < 0 ? borderItem(origin, ENTRY) : (local.get(fromItem) as number);
    const to = toItem < 0 ? borderItem(origin, EXIT) : (local.get(toItem) as number);
    const fromOpen = open.get(fromItem);
    const toOpen = open.get(toItem);
    const fromPort = fromOpen ? origin : -1;
    const key = `${from} ${fromPort} ${to} ${toOpen ? origin : -1}`;
    const existing = edgeByKey.get(key);
    if (existing !== undefined) {
      (behind[existing] as number[]).push(e);
      continue;
    }
    edgeByKey.set(key, behind.push([e]) - 1);
    tail.push(from);
    head.push(to);
    const slotKey = from * stride + fromPort + 1;
    if (!slots.has(slotKey)) slots.set(slotKey, slots.size);
    slot.push(slots.get(slotKey) as number);
    tailOffset.push(fromOpen?.exits.get(origin) ?? 0);
    headOffset.push(toOpen?.entries.get(origin) ?? 0);
  }
  const count = members.length + borderItems.length;
  const turned = direction === LEFT_RIGHT;
  const width = new Float64Array(count);
  const height = new Float64Array(count);
  const role = new Uint8Array(count).fill(INNER);
  members.forEach((item, i) => {
    const size = open.get(item) ?? { width: sizes.width[item] as number, height: sizes.height[item] as number };
    width[i] = turned ? size.height : size.width;
    height[i] = turned ? size.width : size.height;
  });
  borderItems.forEach((_, i) => {
    width[members.length + i] = ENTRY_WIDTH;
    role[members.length + i] = wayRoles[i] as number;
  });
  const behindStart = new Int32Array(behind.length + 1);
  behind.forEach((list, i) => (behindStart[i + 1] = (behindStart[i] as number) + list.length));
  return {
    members,
    ways: borderItems,
    behind: Int32Array.from(behind.flat()),
    behindStart,
    problem: {
      width,
      height,
      role,
      room: new Float64Array(count),
      tail: Int32Array.from(tail),
      head: Int32Array.from(head),
      slot: Int32Array.from(slot),
      tailOffset: Float64Array.from(tailOffset),
      headOffset: Float64Array.from(headOffset),
      spacing: spacingFor(direction),
    },
  };
}
