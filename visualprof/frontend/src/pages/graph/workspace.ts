// The state shared by all parts of the page: models, pictures, selection, search results and measurements.
import { computed, inject, nextTick, provide, ref, shallowRef, watch, type InjectionKey } from "vue";
import { baseQuery, patchQuery, queryValue, run, runs, selectedQuery, theme } from "../../state";
import { NO_HIGHLIGHTS, type Highlights } from "./canvas/highlights";
import { visibleBox } from "./canvas/scene";
import { boxStatus, useComparison } from "./comparison";
import { searchItems, findByName } from "./search";
import { flowHighlights, traceFlow } from "./flow";
import { compareProfiles, heatOverlay, changeOverlay } from "./heat";
import { useMeasurements } from "./measurements";
import { useModels } from "./models";
import { formatItem, parseItem } from "./open-groups";
import { useModelSession, type ModelSession } from "./model-session";
import { useSideBySide } from "./side-by-side";
import { Stage } from "./stage";
import { useGraphState } from "./state";

export type Workspace = ReturnType<typeof useWorkspace>;

const KEY: InjectionKey<Workspace> = Symbol("graph");

export function injectWorkspace(): Workspace {
  const workspace = inject(KEY);
  if (!workspace) throw new Error("only inside the graph page");
  return workspace;
}

export function useWorkspace() {
  // With a base, the changes are requested.
  const state = useGraphState(() => (change.value ? "change" : "time_ns"));
  const models = useModels();
  const chosen = computed(
    () =>
      models.sorted.value.find((model) => model.id === state.model.value) ??
      (state.model.value ? null : models.defaultModel.value),
  );
  const missing = computed(() => state.model.value !== "" && models.answer.value !== null && chosen.value === null);
  const model = computed(() => chosen.value?.id ?? null);
  // An address with a model and no run means the run in the model's folder, otherwise the default one.
  watch(
    [chosen, runs, models.answer],
    () => {
      if (!state.model.value || queryValue("run") !== null || !models.answer.value || !run.value) return;
      const ownRun = runs.value.find(({ id }) => id === chosen.value?.run);
      patchQuery({ run: (ownRun ?? run.value).id });
    },
    { immediate: true },
  );
  const other = computed(() => (state.other.value && state.other.value !== model.value ? state.other.value : null));
  const comparing = computed(() => other.value !== null && model.value !== null);

  const main = useModelSession(
    () => model.value,
    () => state.direction.value,
    state.open,
  );
  const second = useModelSession(
    () => other.value,
    () => state.direction.value,
    state.otherOpen,
  );
  const stage = new Stage(theme.value);
  const otherStage = new Stage(theme.value);
  const measured = useMeasurements(
    () => model.value,
    main,
    () => selectedQuery.value,
  );
  const base = useMeasurements(
    () => model.value,
    main,
    () => baseQuery.value,
  );
  // Next to another model, the base is the run that measured it.
  const otherMeasured = useMeasurements(
    () => other.value,
    second,
    () => baseQuery.value,
  );
  const change = computed(() => {
    const [graph, profile, otherRun] = [main.graph.value, measured.data.value, baseQuery.value && base.data.value];
    const fit =
      graph && profile?.columns.time_ns.length === graph.nodes && otherRun?.columns.time_ns.length === graph.nodes;
    return fit && profile && otherRun ? compareProfiles(graph, profile, otherRun) : null;
  });
  const comparison = useComparison(
    () => model.value,
    () => other.value,
    main,
    second,
    comparing,
    state.difference,
  );

  const selected = computed(() => (main.graph.value ? parseItem(main.graph.value, state.selected.value) : -1));
  const otherSelected = ref(-1);
  const sides = useSideBySide(stage, otherStage, comparing, selected, comparison.partner);
  const hover = ref(-1);
  const otherHover = ref(-1);
  const hits = computed(() => (main.graph.value ? searchItems(main.graph.value, state.search.value) : []));
  const exact = shallowRef<number[]>([]);
  const measure = computed(() => {
    const selectedMeasure = state.measure.value;
    return selectedMeasure === "change" || (selectedMeasure && measured.available.value.includes(selectedMeasure))
      ? selectedMeasure
      : null;
  });

  const flow = computed(() =>
    main.graph.value && selected.value >= 0 && selected.value !== main.graph.value.root
      ? traceFlow(main.graph.value, selected.value, state.whole.value)
      : null,
  );
  const heat = computed(() => {
    if (!main.scene.value || !measured.sums.value || !measure.value || comparing.value) return null;
    if (measure.value === "change") return change.value && changeOverlay(main.scene.value, change.value);
    return heatOverlay(main.scene.value, measured.sums.value, measure.value, measured.data.value?.total_ns ?? 0);
  });
  const marks = computed<Highlights>(() => {
    const scene = main.scene.value;
    if (!scene) return NO_HIGHLIGHTS;
    const foundBoxes = new Uint8Array(scene.picture.item.length);
    for (const item of [...hits.value, ...exact.value]) {
      const box = visibleBox(scene, item);
      if (box >= 0) foundBoxes[box] = 1;
    }
    return {
      selected: selected.value >= 0 ? visibleBox(scene, selected.value) : -1,
      hover: hover.value >= 0 ? (scene.boxIndex[hover.value] ?? -1) : -1,
      ...(flow.value ? flowHighlights(scene, flow.value) : { edges: null, boxes: null }),
      dim: flow.value !== null && state.whole.value,
      found: hits.value.length + exact.value.length > 0 ? foundBoxes : null,
      heat: heat.value,
      status: comparison.answer.value ? boxStatus(scene, comparison.status.value) : null,
    };
  });
  const otherMarks = computed<Highlights>(() => {
    const scene = second.scene.value;
    if (!scene) return NO_HIGHLIGHTS;
    return {
      ...NO_HIGHLIGHTS,
      selected: otherSelected.value >= 0 ? visibleBox(scene, otherSelected.value) : -1,
      hover: otherHover.value >= 0 ? (scene.boxIndex[otherHover.value] ?? -1) : -1,
      status: comparison.answer.value ? boxStatus(scene, comparison.otherStatus.value) : null,
    };
  });

  /** Bring an item into view, open the groups around it, and align its counterpart. */
  function showIn(session: ModelSession, on: Stage, item: number): void {
    if (item < 0) return;
    const show = () => {
      on.reveal(item);
      sides.hold(item, on === stage);
    };
    if (!session.uncover(item)) return show();
    const stop = watch(session.scene, () => {
      stop();
      void nextTick(show);
    });
  }

  /** The previous selection keeps its position; the other side shows its counterpart next to it. */
  function select(item: number): void {
    if (state.find.value && !exact.value.includes(item)) state.find.value = "";
    state.selected.value = main.graph.value && item >= 0 ? formatItem(main.graph.value, item) : "";
    if (!comparing.value) return;
    otherSelected.value = comparison.partner(item, true);
    second.uncover(otherSelected.value);
    sides.hold(item, true);
  }

  function selectOther(item: number): void {
    otherSelected.value = item;
    const counterpart = comparison.partner(item, false);
    state.selected.value = main.graph.value && counterpart >= 0 ? formatItem(main.graph.value, counterpart) : "";
    main.uncover(counterpart);
    sides.hold(item, false);
  }

  function showOther(node: number): void {
    const item = second.graph.value?.item[node] ?? node;
    selectOther(item);
    showIn(second, otherStage, item);
  }

  /** Select an item, open the groups around it, and bring it into view. */
  function goTo(node: number): void {
    const item = main.graph.value?.item[node] ?? node;
    select(item);
    showIn(main, stage, item);
  }

  function toggle(item: number, ofMain = true): void {
    const counterpart = comparing.value ? comparison.partner(item, ofMain) : -1;
    const [session, otherSession] = ofMain ? [main, second] : [second, main];
    const opens = !session.open.value.has(item);
    sides.hold(item, ofMain);
    session.toggle(item);
    if (
      counterpart >= 0 &&
      otherSession.graph.value?.isGroup(counterpart) &&
      otherSession.open.value.has(counterpart) !== opens
    )
      otherSession.toggle(counterpart);
  }

  /** Call a function for each shown model. */
  function forEachSession(act: (session: ModelSession) => void): void {
    for (const session of comparing.value ? [main, second] : [main]) act(session);
  }

  function moveHit(delta: 1 | -1): void {
    const matches = hits.value.length > 0 ? hits.value : exact.value;
    if (matches.length === 0) return;
    const at = matches.indexOf(selected.value);
    const next = at >= 0 ? at + delta : delta > 0 ? 0 : matches.length - 1;
    goTo(matches[(next + matches.length) % matches.length] ?? -1);
  }

  // A link from a table names an operator: find its nodes once the model is loaded, preferably by the run's
  // measurements.
  watch(
    [main.graph, state.find, measured.data],
    ([graph, name, profile]) => {
      const before = exact.value[0];
      exact.value = graph && name ? findByName(graph, name, profile?.columns.operator) : [];
      if (exact.value[0] === before) return;
      if (graph && exact.value.length > 0) void nextTick(() => goTo(exact.value[0] ?? -1));
    },
    { immediate: true },
  );
  // The selection of a link must be visible.
  const firstScene = watch(main.scene, (scene) => {
    if (!scene) return;
    firstScene();
    if (selected.value >= 0) void nextTick(() => showIn(main, stage, selected.value));
  });
  // The other model opens as far as the first one, unless the link says otherwise.
  watch(comparison.answer, (answer) => {
    if (!answer) return;
    if (!state.otherOpen.value) second.showOpen(comparison.openedAlike());
    otherSelected.value = comparison.partner(selected.value, true);
    second.uncover(otherSelected.value);
    sides.settle(true);
  });
  watch(comparing, () => sides.fit());
  watch([models.stamp, run], () => void models.load(), { immediate: true });

  function choose(id: string): void {
    state.model.value = id;
    for (const parameter of [state.open, state.selected, state.search, state.find, state.other, state.otherOpen])
      parameter.value = "";
    state.difference.value = -1;
  }

  function compareWith(id: string): void {
    state.other.value = id;
    state.otherOpen.value = "";
    state.difference.value = -1;
  }

  const workspace = {
    state,
    models,
    chosen,
    missing,
    model,
    other,
    comparing,
    main,
    second,
    stage,
    otherStage,
    measured,
    otherMeasured,
    base,
    change,
    comparison,
    selected,
    otherSelected,
    hover,
    otherHover,
    hits,
    exact,
    measure,
    marks,
    otherMarks,
    select,
    selectOther,
    showOther,
    goTo,
    toggle,
    everywhere: forEachSession,
    moveHit,
    choose,
    compareWith,
    sides,
    heat,
  };
  provide(KEY, workspace);
  return workspace;
}
