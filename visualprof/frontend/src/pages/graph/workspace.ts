// Everything that the parts of the page share: state, models, the pictures, what is selected, found and measured.
import { computed, inject, nextTick, provide, ref, shallowRef, watch, type InjectionKey } from "vue";
import { base_query, run, selected_query, theme } from "../../state";
import { NO_MARKS, type Marks } from "./canvas/marks";
import { shown_place } from "./canvas/scene";
import { box_status, useComparison } from "./comparison";
import { found_items, named_items } from "./find";
import { flow_marks, flow_of } from "./flow";
import { change_of, heat_of, heat_of_change } from "./heat";
import { useMeasured } from "./measured";
import { useModels } from "./models";
import { item_text, text_item } from "./opened";
import { useSession, type Session } from "./session";
import { useSides } from "./sides";
import { Stage } from "./stage";
import { useGraphState } from "./state";

export type Workspace = ReturnType<typeof useWorkspace>;

const KEY: InjectionKey<Workspace> = Symbol("graph");

export function theWorkspace(): Workspace {
  const workspace = inject(KEY);
  if (!workspace) throw new Error("only inside the graph page");
  return workspace;
}

export function useWorkspace() {
  // Beside a base, what changed is asked for.
  const state = useGraphState(() => (change.value ? "change" : "time_ns"));
  const models = useModels();
  const chosen = computed(
    () =>
      models.sorted.value.find((one) => one.id === state.model.value) ??
      (state.model.value ? null : models.default_model.value),
  );
  const missing = computed(() => state.model.value !== "" && models.answer.value !== null && chosen.value === null);
  const model = computed(() => chosen.value?.id ?? null);
  const other = computed(() => (state.other.value && state.other.value !== model.value ? state.other.value : null));
  const comparing = computed(() => other.value !== null && model.value !== null);

  const main = useSession(
    () => model.value,
    () => state.direction.value,
    state.open,
  );
  const second = useSession(
    () => other.value,
    () => state.direction.value,
    state.other_open,
  );
  const stage = new Stage(theme.value);
  const other_stage = new Stage(theme.value);
  const measured = useMeasured(
    () => model.value,
    main,
    () => selected_query.value,
  );
  const base = useMeasured(
    () => model.value,
    main,
    () => base_query.value,
  );
  // Beside another model, the base is the run that measured that one.
  const other_measured = useMeasured(
    () => other.value,
    second,
    () => base_query.value,
  );
  const change = computed(() => {
    const [graph, own, other_run] = [main.graph.value, measured.data.value, base_query.value && base.data.value];
    const fit =
      graph && own?.columns.time_ns.length === graph.nodes && other_run?.columns.time_ns.length === graph.nodes;
    return fit && own && other_run ? change_of(graph, own, other_run) : null;
  });
  const comparison = useComparison(
    () => model.value,
    () => other.value,
    main,
    second,
    comparing,
    state.difference,
  );

  const selected = computed(() => (main.graph.value ? text_item(main.graph.value, state.selected.value) : -1));
  const other_selected = ref(-1);
  const sides = useSides(stage, other_stage, comparing, selected, comparison.partner);
  const hover = ref(-1);
  const other_hover = ref(-1);
  const hits = computed(() => (main.graph.value ? found_items(main.graph.value, state.search.value) : []));
  const exact = shallowRef<number[]>([]);
  const measure = computed(() => {
    const wanted = state.measure.value;
    return wanted === "change" || (wanted && measured.available.value.includes(wanted)) ? wanted : null;
  });

  const flow = computed(() =>
    main.graph.value && selected.value >= 0 && selected.value !== main.graph.value.root
      ? flow_of(main.graph.value, selected.value, state.whole.value)
      : null,
  );
  const heat = computed(() => {
    if (!main.scene.value || !measured.sums.value || !measure.value || comparing.value) return null;
    if (measure.value === "change") return change.value && heat_of_change(main.scene.value, change.value);
    return heat_of(main.scene.value, measured.sums.value, measure.value, measured.data.value?.total_ns ?? 0);
  });
  const marks = computed<Marks>(() => {
    const scene = main.scene.value;
    if (!scene) return NO_MARKS;
    const found = new Uint8Array(scene.picture.item.length);
    for (const item of [...hits.value, ...exact.value]) {
      const place = shown_place(scene, item);
      if (place >= 0) found[place] = 1;
    }
    return {
      selected: selected.value >= 0 ? shown_place(scene, selected.value) : -1,
      hover: hover.value >= 0 ? (scene.place[hover.value] ?? -1) : -1,
      ...(flow.value ? flow_marks(scene, flow.value) : { edges: null, boxes: null }),
      dim: flow.value !== null && state.whole.value,
      found: hits.value.length + exact.value.length > 0 ? found : null,
      heat: heat.value,
      status: comparison.answer.value ? box_status(scene, comparison.status.value) : null,
    };
  });
  const other_marks = computed<Marks>(() => {
    const scene = second.scene.value;
    if (!scene) return NO_MARKS;
    return {
      ...NO_MARKS,
      selected: other_selected.value >= 0 ? shown_place(scene, other_selected.value) : -1,
      hover: other_hover.value >= 0 ? (scene.place[other_hover.value] ?? -1) : -1,
      status: comparison.answer.value ? box_status(scene, comparison.other_status.value) : null,
    };
  });

  /** Brings an item into sight, opens what hides it, and puts what corresponds beside it. */
  function show_in(session: Session, on: Stage, item: number): void {
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

  /** What was selected stays where it is; the other side shows its partner beside it. */
  function select(item: number): void {
    if (state.find.value && !exact.value.includes(item)) state.find.value = "";
    state.selected.value = main.graph.value && item >= 0 ? item_text(main.graph.value, item) : "";
    if (!comparing.value) return;
    other_selected.value = comparison.partner(item, true);
    second.uncover(other_selected.value);
    sides.hold(item, true);
  }

  function select_other(item: number): void {
    other_selected.value = item;
    const own = comparison.partner(item, false);
    state.selected.value = main.graph.value && own >= 0 ? item_text(main.graph.value, own) : "";
    main.uncover(own);
    sides.hold(item, false);
  }

  function show_other(node: number): void {
    const item = second.graph.value?.item[node] ?? node;
    select_other(item);
    show_in(second, other_stage, item);
  }

  /** Selects, opens what hides it, and brings it into sight. */
  function go_to(node: number): void {
    const item = main.graph.value?.item[node] ?? node;
    select(item);
    show_in(main, stage, item);
  }

  function toggle(item: number, of_main = true): void {
    const twin = comparing.value ? comparison.partner(item, of_main) : -1;
    const [own, far] = of_main ? [main, second] : [second, main];
    const opens = !own.open.value.has(item);
    sides.hold(item, of_main);
    own.toggle(item);
    if (twin >= 0 && far.graph.value?.is_group(twin) && far.open.value.has(twin) !== opens) far.toggle(twin);
  }

  /** Folds or unfolds all that is shown. */
  function everywhere(act: (one: Session) => void): void {
    for (const one of comparing.value ? [main, second] : [main]) act(one);
  }

  function move_hit(by: 1 | -1): void {
    const all = hits.value.length > 0 ? hits.value : exact.value;
    if (all.length === 0) return;
    const at = all.indexOf(selected.value);
    const next = at >= 0 ? at + by : by > 0 ? 0 : all.length - 1;
    go_to(all[(next + all.length) % all.length] ?? -1);
  }

  // A link from a table names an operator: find its nodes once the model is there, best by what the run measured.
  watch(
    [main.graph, state.find, measured.data],
    ([graph, name, profile]) => {
      const before = exact.value[0];
      exact.value = graph && name ? named_items(graph, name, profile?.columns.operator) : [];
      if (exact.value[0] === before) return;
      if (graph && exact.value.length > 0) void nextTick(() => go_to(exact.value[0] ?? -1));
    },
    { immediate: true },
  );
  // Opened by a link: what it selects must be in sight.
  const first_scene = watch(main.scene, (scene) => {
    if (!scene) return;
    first_scene();
    if (selected.value >= 0) void nextTick(() => show_in(main, stage, selected.value));
  });
  // The other model opens as far as the first is open, unless a link says how far.
  watch(comparison.answer, (answer) => {
    if (!answer) return;
    if (!state.other_open.value) second.show_open(comparison.opened_alike());
    other_selected.value = comparison.partner(selected.value, true);
    second.uncover(other_selected.value);
    sides.settle(true);
  });
  watch(comparing, () => sides.fit());
  watch([models.stamp, run], () => void models.load(), { immediate: true });

  function choose(id: string): void {
    state.model.value = id;
    for (const one of [state.open, state.selected, state.search, state.find, state.other, state.other_open])
      one.value = "";
    state.difference.value = -1;
  }

  function compare_with(id: string): void {
    state.other.value = id;
    state.other_open.value = "";
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
    other_stage,
    measured,
    other_measured,
    base,
    change,
    comparison,
    selected,
    other_selected,
    hover,
    other_hover,
    hits,
    exact,
    measure,
    marks,
    other_marks,
    select,
    select_other,
    show_other,
    go_to,
    toggle,
    everywhere,
    move_hit,
    choose,
    compare_with,
    sides,
    heat,
  };
  provide(KEY, workspace);
  return workspace;
}
