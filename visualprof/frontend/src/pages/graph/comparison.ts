// A second model compared with the first: the status of each node and its counterpart.
import { computed, type Ref } from "vue";
import { address } from "../../api/client";
import { useResource } from "../../state/resource";
import type { ChangeStatus, CompareAnswer } from "../../api/graph";
import type { Scene } from "./canvas/scene";
import type { Graph } from "./graph";
import type { ModelSession } from "./model-session";

const STATUS_ORDER: readonly ChangeStatus[] = ["same", "changed", "added", "removed"];

/**
 * Return the status of each box. A folded group has the most severe status inside it; mixed statuses count as changed.
 */
export function boxStatus(scene: Scene, status: readonly ChangeStatus[]): (ChangeStatus | null)[] {
  const { graph, picture } = scene;
  const out: (ChangeStatus | null)[] = new Array<ChangeStatus | null>(picture.item.length).fill(null);
  picture.item.forEach((item, i) => {
    if (picture.open[i]) return;
    const statuses = new Set(graph.below(item).map((node) => status[node] ?? "same"));
    const worst = [...statuses].sort((a, b) => STATUS_ORDER.indexOf(b) - STATUS_ORDER.indexOf(a))[0] ?? "same";
    out[i] = statuses.size > 1 && worst !== "same" ? "changed" : worst;
  });
  return out;
}

/** A node with a kind of difference; -1 in a model that lacks it. */
export interface Change {
  node: number;
  other: number;
  type: string;
  name: string;
  what: string;
}

/** Nodes with the same difference. */
export interface Difference {
  change: string;
  status: ChangeStatus;
  /** Name of the attribute. */
  name: string | null;
  dimension: number | null;
  before: string | null;
  after: string | null;
  nodes: number;
  changes: Change[];
}

export function groupDifferences({ summary, changes }: CompareAnswer["differences"]): Difference[] {
  const { columns } = summary;
  const changedRows = columns.change.map((change, i): Difference => ({
    change: change ?? "",
    status: STATUS_ORDER.find((status) => status === change) ?? "changed",
    name: columns.name[i] ?? null,
    dimension: columns.dimension[i] == null ? null : Number(columns.dimension[i]),
    before: columns.before[i] ?? null,
    after: columns.after[i] ?? null,
    nodes: columns.nodes[i] ?? 0,
    changes: [],
  }));
  const { kind, node, other, type, name, what } = changes.columns;
  kind.forEach((k, i) =>
    changedRows[Number(k)]?.changes.push({
      node: Number(node[i] ?? -1),
      other: Number(other[i] ?? -1),
      type: type[i] ?? "",
      name: name[i] ?? "",
      what: what[i] ?? "",
    }),
  );
  return changedRows;
}

export function useComparison(
  model: () => string | null,
  other: () => string | null,
  main: ModelSession,
  second: ModelSession,
  visible: Ref<boolean>,
  chosen: Ref<number>,
) {
  const { data, error, loading } = useResource<CompareAnswer>(
    () => (visible.value ? address("graph/compare", { model: model(), other: other() }) : null),
    () => null,
  );

  /**
   * Whether the answer is for these two models. While another model is loading, the answer or a picture may still be
   * the previous one.
   */
  const answer = computed(() => {
    const fits =
      data.value?.status.length === main.graph.value?.nodes &&
      data.value?.other_status.length === second.graph.value?.nodes;
    return fits && visible.value ? data.value : null;
  });
  const differences = computed(() => (answer.value ? groupDifferences(answer.value.differences) : []));
  /** The status of each node, limited to one kind of difference if one is chosen. */
  const status = computed(() => statusCounts("node", answer.value?.status ?? []));
  const otherStatus = computed(() => statusCounts("other", answer.value?.other_status ?? []));

  function statusCounts(side: "node" | "other", statuses: readonly ChangeStatus[]): readonly ChangeStatus[] {
    const difference = differences.value[chosen.value];
    if (!difference) return statuses;
    const highlighted = new Set(difference.changes.map((change) => change[side]));
    return statuses.map((status, node) => (highlighted.has(node) ? status : "same"));
  }

  const partners = computed(() => {
    const to = new Map<number, number>();
    const from = new Map<number, number>();
    for (const [a, b] of answer.value?.pairs ?? []) {
      to.set(a, b);
      from.set(b, a);
    }
    return { to, from };
  });

  /**
   * Return the counterpart of a node. For a group, return the other model's group that contains the counterpart of its
   * first matched node.
   */
  function partner(item: number, ofMain: boolean): number {
    const [graph, otherGraph]: [Graph | null, Graph | null] = ofMain
      ? [main.graph.value, second.graph.value]
      : [second.graph.value, main.graph.value];
    const map = ofMain ? partners.value.to : partners.value.from;
    if (!graph || !otherGraph || item < 0) return -1;
    const same = map.get(graph.nodeOf(item));
    if (same !== undefined || !graph.isGroup(item)) return otherGraph.item[same ?? -1] ?? -1;
    const node = graph.below(item).find((candidate) => map.has(candidate));
    if (node === undefined) return -1;
    const name = graph.answer.groups.name[item - graph.nodes];
    const around = otherGraph.around(map.get(node) ?? 0);
    const up = (graph.depth[node] ?? 0) - (graph.depth[item] ?? 0) - 1;
    return around.find((group) => otherGraph.answer.groups.name[group - otherGraph.nodes] === name) ?? around[up] ?? -1;
  }

  /** Return the groups of the second model that are open: like their counterparts, or unchanged without one. */
  function counterpartOpenGroups(): Set<number> {
    const otherGraph = second.graph.value;
    const groups = Array.from({ length: otherGraph?.groups ?? 0 }, (_, g) => (otherGraph?.root ?? 0) + g);
    return new Set(
      groups.filter((group) => {
        const counterpart = partner(group, false);
        return main.graph.value?.isGroup(counterpart) ? main.open.value.has(counterpart) : second.open.value.has(group);
      }),
    );
  }

  return { answer, error, loading, partner, openedAlike: counterpartOpenGroups, differences, status, otherStatus };
}
