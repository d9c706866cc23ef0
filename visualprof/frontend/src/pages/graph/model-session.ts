// One model on one canvas: the server's answer, the open groups, and the picture.
import { useTimeoutFn } from "@vueuse/core";
import { onScopeDispose, ref, shallowRef, watch, type Ref } from "vue";
import { address } from "../../api/client";
import { useResource } from "../../state/resource";
import type { GraphAnswer } from "../../api/graph";
import { buildScene, type Scene } from "./canvas/scene";
import { Graph } from "./graph";
import { LayoutClient } from "./layout/client";
import type { Direction } from "./layout/direction";
import { maxDepth, openLevel, openToLevel, formatOpen, parseOpen } from "./open-groups";

const SLOW_LAYOUT_MS = 300;

export type ModelSession = ReturnType<typeof useModelSession>;

export function useModelSession(model: () => string | null, direction: () => Direction, code: Ref<string>) {
  const { data, error, loading, waiting } = useResource<GraphAnswer>(
    () => model() && address("graph", { model: model() }),
    () => null,
  );
  const graph = shallowRef<Graph | null>(null);
  const scene = shallowRef<Scene | null>(null);
  const open = shallowRef<ReadonlySet<number>>(new Set());
  const failure = ref("");
  const busy = ref(false);
  /** The item that keeps its position when the picture changes. */
  const anchor = ref(-1);
  let client: LayoutClient | null = null;
  let loads = 0;

  async function draw(): Promise<void> {
    const currentGraph = graph.value;
    if (!client || !currentGraph) return;
    loads += 1;
    const load = loads;
    busy.value = true;
    failure.value = "";
    try {
      const picture = await client.layout(open.value, direction());
      if (load === loads && graph.value === currentGraph) scene.value = buildScene(currentGraph, picture);
    } catch (reason) {
      if (load === loads) failure.value = reason instanceof Error ? reason.message : String(reason);
    }
    if (load === loads) busy.value = false;
  }

  watch(data, (answer) => {
    client?.close();
    client = answer ? new LayoutClient(answer) : null;
    scene.value = null;
    graph.value = answer ? new Graph(answer) : null;
    open.value = graph.value ? parseOpen(graph.value, code.value) : new Set();
    anchor.value = -1;
    void draw();
  });
  // While a new model loads slowly, the previous one is not shown under its name.
  const { start } = useTimeoutFn(
    () => {
      if (data.value?.model.id !== model()) data.value = null;
    },
    SLOW_LAYOUT_MS,
    { immediate: false },
  );
  watch(model, start);
  watch(direction, () => {
    anchor.value = -1;
    void draw();
  });
  watch(code, (text) => {
    if (!graph.value || text === formatOpen(graph.value, open.value)) return;
    open.value = parseOpen(graph.value, text);
    void draw();
  });
  onScopeDispose(() => client?.close());

  function set(next: Set<number>, hold = -1): void {
    if (!graph.value) return;
    next.add(graph.value.root);
    open.value = next;
    anchor.value = hold;
    code.value = formatOpen(graph.value, next);
    void draw();
  }

  function toggle(item: number): void {
    if (!graph.value?.isGroup(item) || item === graph.value.root) return;
    const next = new Set(open.value);
    if (!next.delete(item)) next.add(item);
    set(next, item);
  }

  /** Open the folded groups around an item. It appears where its group was. */
  function openAncestors(item: number): boolean {
    if (!graph.value || item < 0) return false;
    const next = new Set([...open.value, ...graph.value.around(item)]);
    if (next.size === open.value.size) return false;
    set(next, item);
    return true;
  }

  /** Open exactly these groups. */
  function showOpen(groups: Set<number>): void {
    if (graph.value && formatOpen(graph.value, groups) !== formatOpen(graph.value, open.value)) set(groups);
  }

  function stepLevel(delta: 1 | -1): void {
    const currentGraph = graph.value;
    if (!currentGraph) return;
    const now = openLevel(currentGraph, open.value);
    set(
      openToLevel(
        currentGraph,
        Math.max(0, Math.min(maxDepth(currentGraph), delta > 0 ? now + 1 : Math.min(now, maxDepth(currentGraph)) - 1)),
      ),
    );
  }

  function openAll(): void {
    if (graph.value) set(openToLevel(graph.value, maxDepth(graph.value)));
  }

  function closeAll(): void {
    set(new Set());
  }

  return {
    data,
    error,
    loading,
    waiting,
    graph,
    scene,
    open,
    busy,
    failure,
    anchor,
    toggle,
    uncover: openAncestors,
    showOpen,
    stepLevel,
    openAll,
    closeAll,
  };
}
