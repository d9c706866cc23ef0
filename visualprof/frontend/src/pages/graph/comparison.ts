// Another model beside the first: what became of each node, and which of the other's it is.
import { computed, type Ref } from "vue";
import { address } from "../../api/client";
import { useResource } from "../../state/resource";
import type { ChangeStatus, CompareAnswer } from "../../api/graph";
import type { Scene } from "./canvas/scene";
import type { Graph } from "./graph";
import type { Session } from "./model-session";

const WEIGHT: readonly ChangeStatus[] = ["same", "changed", "added", "removed"];

/** Boxes by status; a folded group shows the gravest of what it holds: a mix counts as changed. */
export function boxStatus(scene: Scene, status: readonly ChangeStatus[]): (ChangeStatus | null)[] {
  const { graph, picture } = scene;
  const out: (ChangeStatus | null)[] = new Array<ChangeStatus | null>(picture.item.length).fill(null);
  picture.item.forEach((item, i) => {
    if (picture.open[i]) return;
    const all = new Set(graph.below(item).map((node) => status[node] ?? "same"));
    const worst = [...all].sort((a, b) => WEIGHT.indexOf(b) - WEIGHT.indexOf(a))[0] ?? "same";
    out[i] = all.size > 1 && worst !== "same" ? "changed" : worst;
  });
  return out;
}

/** A node that has a kind of difference; -1 where a model has none. */
export interface Change {
  node: number;
  other: number;
  type: string;
  name: string;
  what: string;
}

/** Nodes that have the same difference. */
export interface Difference {
  change: string;
  status: ChangeStatus;
  /** Of an attribute. */
  name: string | null;
  dimension: number | null;
  before: string | null;
  after: string | null;
  nodes: number;
  changes: Change[];
}

export function differencesOf({ summary, changes }: CompareAnswer["differences"]): Difference[] {
  const { columns } = summary;
  const all = columns.change.map((change, i): Difference => ({
    change: change ?? "",
    status: WEIGHT.find((status) => status === change) ?? "changed",
    name: columns.name[i] ?? null,
    dimension: columns.dimension[i] == null ? null : Number(columns.dimension[i]),
    before: columns.before[i] ?? null,
    after: columns.after[i] ?? null,
    nodes: columns.nodes[i] ?? 0,
    changes: [],
  }));
  const { kind, node, other, type, name, what } = changes.columns;
  kind.forEach((k, i) =>
    all[Number(k)]?.changes.push({
      node: Number(node[i] ?? -1),
      other: Number(other[i] ?? -1),
      type: type[i] ?? "",
      name: name[i] ?? "",
      what: what[i] ?? "",
    }),
  );
  return all;
}

export function useComparison(
  model: () => string | null,
  other: () => string | null,
  main: Session,
  second: Session,
  shown: Ref<boolean>,
  chosen: Ref<number>,
) {
  const { data, error, loading } = useResource<CompareAnswer>(
    () => (shown.value ? address("graph/compare", { model: model(), other: other() }) : null),
    () => null,
  );

  /** Of these two models: while another is on its way, the answer or a picture may still be of the one before. */
  const answer = computed(() => {
    const fits =
      data.value?.status.length === main.graph.value?.nodes &&
      data.value?.other_status.length === second.graph.value?.nodes;
    return fits && shown.value ? data.value : null;
  });
  const differences = computed(() => (answer.value ? differencesOf(answer.value.differences) : []));
  /** What becomes of each node, of one kind of difference alone where one is chosen. */
  const status = computed(() => only("node", answer.value?.status ?? []));
  const otherStatus = computed(() => only("other", answer.value?.other_status ?? []));

  function only(side: "node" | "other", all: readonly ChangeStatus[]): readonly ChangeStatus[] {
    const one = differences.value[chosen.value];
    if (!one) return all;
    const held = new Set(one.changes.map((change) => change[side]));
    return all.map((status, node) => (held.has(node) ? status : "same"));
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

  /** The other side's node; of a group, the other's group that holds the partner of its first paired node. */
  function partner(item: number, ofMain: boolean): number {
    const [own, far]: [Graph | null, Graph | null] = ofMain
      ? [main.graph.value, second.graph.value]
      : [second.graph.value, main.graph.value];
    const map = ofMain ? partners.value.to : partners.value.from;
    if (!own || !far || item < 0) return -1;
    const same = map.get(own.nodeOf(item));
    if (same !== undefined || !own.isGroup(item)) return far.item[same ?? -1] ?? -1;
    const node = own.below(item).find((one) => map.has(one));
    if (node === undefined) return -1;
    const name = own.answer.groups.name[item - own.nodes];
    const around = far.around(map.get(node) ?? 0);
    const up = (own.depth[node] ?? 0) - (own.depth[item] ?? 0) - 1;
    return around.find((group) => far.answer.groups.name[group - far.nodes] === name) ?? around[up] ?? -1;
  }

  /** Groups of the second model that are open as their partners are; those without one are as they were. */
  function openedAlike(): Set<number> {
    const far = second.graph.value;
    const all = Array.from({ length: far?.groups ?? 0 }, (_, g) => (far?.root ?? 0) + g);
    return new Set(
      all.filter((group) => {
        const own = partner(group, false);
        return main.graph.value?.isGroup(own) ? main.open.value.has(own) : second.open.value.has(group);
      }),
    );
  }

  return { answer, error, loading, partner, openedAlike, differences, status, otherStatus };
}
