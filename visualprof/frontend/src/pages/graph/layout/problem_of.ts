// One open group as a layout problem: its members, the edges between them, and a way in or out for all that passes its border.
import type { Graph } from "../graph";
import { ENTRY, EXIT, INNER, type Problem } from "./problem";
import { LEFT_RIGHT, spacing_of, type Direction } from "./direction";

/** A member that is open, with where edges pass its border (from its middle), by what it carries on. */
export interface Open {
  width: number;
  height: number;
  entries: ReadonlyMap<number, number>;
  exits: ReadonlyMap<number, number>;
}

export interface Posed {
  problem: Problem;
  members: Int32Array;
  /** What each way in and out carries on; they follow the members. */
  ways: number[];
  /** Original edges behind drawn edge e: behind[start[e]] .. behind[start[e + 1] - 1]. */
  behind: Int32Array;
  behind_start: Int32Array;
}

const WAY_WIDTH = 8;

export function pose(
  graph: Graph,
  group: number,
  sizes: { width: Float64Array; height: Float64Array },
  open: ReadonlyMap<number, Open>,
  direction: Direction,
): Posed {
  const members = graph.members[group - graph.nodes] ?? new Int32Array(0);
  const local = new Map<number, number>();
  members.forEach((item, i) => local.set(item, i));
  const ways: number[] = [];
  const way_roles: number[] = [];
  const way_at = new Map<number, number>();
  const way = (source: number, role: typeof ENTRY | typeof EXIT) => {
    const key = source * 2 + (role === ENTRY ? 0 : 1);
    const known = way_at.get(key);
    if (known !== undefined) return known;
    way_roles.push(role);
    const at = members.length + ways.push(source) - 1;
    way_at.set(key, at);
    return at;
  };
  const tail: number[] = [];
  const head: number[] = [];
  const slot: number[] = [];
  const tail_offset: number[] = [];
  const head_offset: number[] = [];
  const behind: number[][] = [];
  const known = new Map<string, number>();
  const slots = new Map<number, number>();
  const stride = graph.nodes + graph.answer.values.name.length + 1;
  for (const e of graph.edges_at(group)) {
    const [source, target] = [graph.src[e] as number, graph.dst[e] as number];
    const [from_item, to_item] = [graph.member_above(source, group), graph.member_above(target, group)];
    if (from_item === to_item) continue;
    const origin = graph.origin[e] as number;
    const from = from_item < 0 ? way(origin, ENTRY) : (local.get(from_item) as number);
    const to = to_item < 0 ? way(origin, EXIT) : (local.get(to_item) as number);
    const from_open = open.get(from_item);
    const to_open = open.get(to_item);
    const from_port = from_open ? origin : -1;
    const key = `${from} ${from_port} ${to} ${to_open ? origin : -1}`;
    const drawn = known.get(key);
    if (drawn !== undefined) {
      (behind[drawn] as number[]).push(e);
      continue;
    }
    known.set(key, behind.push([e]) - 1);
    tail.push(from);
    head.push(to);
    const slot_key = from * stride + from_port + 1;
    if (!slots.has(slot_key)) slots.set(slot_key, slots.size);
    slot.push(slots.get(slot_key) as number);
    tail_offset.push(from_open?.exits.get(origin) ?? 0);
    head_offset.push(to_open?.entries.get(origin) ?? 0);
  }
  const count = members.length + ways.length;
  const turned = direction === LEFT_RIGHT;
  const width = new Float64Array(count);
  const height = new Float64Array(count);
  const role = new Uint8Array(count).fill(INNER);
  members.forEach((item, i) => {
    const size = open.get(item) ?? { width: sizes.width[item] as number, height: sizes.height[item] as number };
    width[i] = turned ? size.height : size.width;
    height[i] = turned ? size.width : size.height;
  });
  ways.forEach((_, i) => {
    width[members.length + i] = WAY_WIDTH;
    role[members.length + i] = way_roles[i] as number;
  });
  const behind_start = new Int32Array(behind.length + 1);
  behind.forEach((list, i) => (behind_start[i + 1] = (behind_start[i] as number) + list.length));
  return {
    members,
    ways,
    behind: Int32Array.from(behind.flat()),
    behind_start,
    problem: {
      width,
      height,
      role,
      room: new Float64Array(count),
      tail: Int32Array.from(tail),
      head: Int32Array.from(head),
      slot: Int32Array.from(slot),
      tail_offset: Float64Array.from(tail_offset),
      head_offset: Float64Array.from(head_offset),
      spacing: spacing_of(direction),
    },
  };
}
