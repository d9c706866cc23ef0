// Another model beside the first: what became of each node, and which of the other's it is.
import { computed, type Ref } from "vue";
import { address } from "../../api/client";
import { useResource } from "../../state/resource";
import type { ChangeStatus, CompareAnswer } from "../../api/graph";
import type { Scene } from "./canvas/scene";
import type { Graph } from "./graph";
import type { Session } from "./session";

const WEIGHT: readonly ChangeStatus[] = ["same", "changed", "added", "removed"];

/** Boxes by status; a folded group shows the gravest of what it holds: a mix counts as changed. */
export function box_status(scene: Scene, status: readonly ChangeStatus[]): (ChangeStatus | null)[] {
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

export function useComparison(model: () => string | null, other: () => string | null, main: Session, second: Session, shown: Ref<boolean>) {
  const { data, error, loading } = useResource<CompareAnswer>(() => (shown.value ? address("graph/compare", { model: model(), other: other() }) : null), () => null);

  const partners = computed(() => {
    const to = new Map<number, number>();
    const from = new Map<number, number>();
    for (const [a, b] of data.value?.pairs ?? []) {
      to.set(a, b);
      from.set(b, a);
    }
    return { to, from };
  });

  /** The other side's node; of a group, the other's group that holds the partner of its first paired node. */
  function partner(item: number, of_main: boolean): number {
    const [own, far]: [Graph | null, Graph | null] = of_main ? [main.graph.value, second.graph.value] : [second.graph.value, main.graph.value];
    const map = of_main ? partners.value.to : partners.value.from;
    if (!own || !far || item < 0) return -1;
    const same = map.get(own.node_of(item));
    if (same !== undefined || !own.is_group(item)) return far.item[same ?? -1] ?? -1;
    const node = own.below(item).find((one) => map.has(one));
    if (node === undefined) return -1;
    const name = own.answer.groups.name[item - own.nodes];
    const around = far.around(map.get(node) ?? 0);
    const up = (own.depth[node] ?? 0) - (own.depth[item] ?? 0) - 1;
    return around.find((group) => far.answer.groups.name[group - far.nodes] === name) ?? around[up] ?? -1;
  }

  const counts = computed(() => {
    const all = [...(data.value?.status ?? []), ...(data.value?.other_status ?? []).filter((one) => one === "added")];
    return Object.fromEntries(WEIGHT.map((status) => [status, all.filter((one) => one === status).length])) as Record<ChangeStatus, number>;
  });

  return { data, error, loading, partner, counts };
}
