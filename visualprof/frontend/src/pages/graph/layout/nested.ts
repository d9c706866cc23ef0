// Lays out open groups from the inside out. A change only lays out the changed group and the groups around it.
import type { Graph } from "../graph";
import { SolutionCache } from "./cache";
import { LEFT_RIGHT, type Direction } from "./direction";
import { EXIT, type Solution } from "./problem";
import { buildProblem, type OpenGroup, type GroupProblem } from "./build-problem";
import { PADDING, boxSizes, TITLE } from "./sizes";

/** A laid-out group: its box, and its members relative to its upper left corner. */
export interface LaidOutGroup extends OpenGroup, GroupProblem {
  group: number;
  solution: Solution;
  /** Offset of the members' picture. */
  left: number;
  top: number;
  inside: ReadonlyMap<number, LaidOutGroup>;
}

export class NestedLayout {
  readonly sizes: { width: Float64Array; height: Float64Array };
  private readonly cache = new SolutionCache();
  private layouts = new Map<number, LaidOutGroup>();
  private open: ReadonlySet<number> = new Set();
  private direction: Direction | null = null;
  /** Groups that the last call laid out. */
  touched = 0;

  constructor(readonly graph: Graph) {
    this.sizes = boxSizes(graph);
  }

  layout(open: ReadonlySet<number>, direction: Direction): LaidOutGroup {
    if (direction !== this.direction) this.layouts.clear();
    for (const group of new Set([...open, ...this.open])) {
      if (open.has(group) === this.open.has(group)) continue;
      this.layouts.delete(group);
      for (const around of this.graph.around(group)) this.layouts.delete(around);
    }
    this.open = new Set(open);
    this.direction = direction;
    this.touched = 0;
    return this.lay(this.graph.root, direction);
  }

  private lay(group: number, direction: Direction): LaidOutGroup {
    const cached = this.layouts.get(group);
    if (cached) return cached;
    this.touched += 1;
    const inside = new Map<number, LaidOutGroup>();
    for (const member of this.graph.members[group - this.graph.nodes] ?? [])
      if (this.graph.isGroup(member) && this.open.has(member)) inside.set(member, this.lay(member, direction));
    const posed = buildProblem(this.graph, group, this.sizes, inside, direction);
    const solution = this.cache.solve(posed.problem);
    const fresh = this.wrapSolution(group, posed, solution, inside, direction);
    this.layouts.set(group, fresh);
    return fresh;
  }

  private wrapSolution(
    group: number,
    posed: GroupProblem,
    solution: Solution,
    inside: ReadonlyMap<number, LaidOutGroup>,
    direction: Direction,
  ): LaidOutGroup {
    const turned = direction === LEFT_RIGHT;
    const wide = turned ? solution.height : solution.width;
    const boxHeight = turned ? solution.width : solution.height;
    const width = Math.max(wide + 2 * PADDING, this.sizes.width[group] as number);
    const left = (width - wide) / 2;
    const height = boxHeight + TITLE + 2 * PADDING;
    const top = TITLE + PADDING;
    const entries = new Map<number, number>();
    const exits = new Map<number, number>();
    posed.ways.forEach((source, i) => {
      const at = posed.members.length + i;
      const middle = (solution.x[at] as number) + (posed.problem.width[at] as number) / 2;
      // Offsets are from the center of the whole box, including its title.
      const offset = turned ? top + middle - height / 2 : left + middle - width / 2;
      (posed.problem.role[at] === EXIT ? exits : entries).set(source, offset);
    });
    return { ...posed, group, solution, inside, width, height, left, top, entries, exits };
  }
}
