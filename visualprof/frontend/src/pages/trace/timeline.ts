// The state shared by all parts of the page: stage, state and tracks, and navigation between locations.
import { computed, inject, nextTick, onScopeDispose, provide, ref, shallowRef, watch, type InjectionKey } from "vue";
import { counterLabel, t, trackLabel } from "../../locales";
import { run, step, theme } from "../../state";
import { BASE, counterpartStep } from "../../compare/step-alignment";
import { useEmptyTracks } from "./empty-tracks";
import { layOutTracks, type Branch } from "./layout";
import type { EventLocation, Range } from "./model";
import { trackRow } from "./overlay";
import { laneBox } from "./lanes";
import type { Scene } from "./scene";
import type { TraceSource } from "./trace-source";
import { useTraceSources } from "./trace-sources";
import { Stage } from "./stage";
import { useTimelineState } from "./state";
import { buildTrackTree, type TrackTexts } from "./track-tree";
import { formatRange, parseRange } from "./url-state";

const ADDRESS_PAUSE_MS = 250;

export type Timeline = ReturnType<typeof useTimeline>;
const KEY: InjectionKey<Timeline> = Symbol("timeline");

export function injectTimeline(): Timeline {
  const timeline = inject(KEY);
  if (!timeline) throw new Error("no timeline around this component");
  return timeline;
}

export function useTimeline() {
  const state = useTimelineState();
  const stage = new Stage();
  // Loaded names change the matches of a search.
  const { sources, main, base, pair, error, pending, offsetOf } = useTraceSources(state, () =>
    stage.marks.searching ? stage.recolor() : stage.invalidate(),
  );
  const visible = shallowRef<Range>({ start: 0, end: 1 });
  const extent = shallowRef<Range>({ start: 0, end: 1 });
  const frame = ref(0);
  const ready = computed(() => main.value !== null);

  const words = computed<TrackTexts>(() => ({
    device: (id) => t("timeline.device", { id }),
    process: (id) => t("timeline.process", { id }),
    annotations: (name) => t("timeline.annotations_of", { name }),
    graphs: (name) => t("timeline.graphs_of", { name }),
    counters: t("timeline.counters"),
    other: t("timeline.other_tracks"),
    track: trackLabel,
    counter: counterLabel,
    unnamed: t("timeline.unnamed"),
  }));
  const branches = computed<Branch[]>(() =>
    sources.value.map((source) => ({
      worker: source.id.worker,
      label: labelOf(source),
      groups: buildTrackTree(source.meta, source.counters.value, source.id.worker, words.value),
    })),
  );
  /** With a base, the label starts with the name of the run. */
  function labelOf({ id }: TraceSource): string {
    if (id.worker === BASE) return t("timeline.base_run", { name: id.name });
    return base.value
      ? t("timeline.new_run", { name: state.shown.value.length > 1 ? id.name : run.value?.name || id.name })
      : id.name;
  }
  const { isEmpty, refreshEmpty } = useEmptyTracks(sources, visible, () => state.hideEmpty.value);
  const layout = computed(() =>
    layOutTracks(branches.value, {
      toggled: state.toggled.value,
      pinned: state.pins.value,
      order: state.order.value,
      filter: state.filter.value,
      hidden: isEmpty,
    }),
  );

  let written = "";
  let addressTimer = 0;

  function writeWindow(): void {
    const { camera } = stage;
    // With a selected event, the window is always in the address; otherwise the address would mean "go to the event".
    written = camera.isWhole && !state.selected.value ? "" : formatRange(camera);
    if (state.win.value !== written) state.win.value = written;
    state.scroll.value = stage.scroll;
  }

  function moved(): void {
    stage.invalidate();
    clearTimeout(addressTimer);
    addressTimer = window.setTimeout(writeWindow, ADDRESS_PAUSE_MS);
  }

  function readWindow(): void {
    const range = parseRange(state.win.value);
    const { camera } = stage;
    if (range) camera.restore(range.start, range.end);
    else camera.set(camera.whole.start, camera.whole.end);
    written = state.win.value;
    stage.invalidate();
  }

  watch(
    [sources, state.offsets, pair],
    ([loaded]) => {
      for (const source of loaded) source.offset = offsetOf(source);
      const first = stage.sources.length === 0;
      const beforeWhole = stage.camera.isWhole;
      stage.sources = loaded;
      stage.main = main.value;
      if (loaded.length === 0) return;
      extent.value = {
        start: Math.min(...loaded.map((source) => source.start)),
        end: Math.max(...loaded.map((source) => source.end)),
      };
      stage.camera.setExtent(extent.value.start, extent.value.end);
      if (first || beforeWhole) readWindow();
      if (first) void nextTick(() => scrollTo.value(state.scroll.value));
      else stage.camera.set(stage.camera.start, stage.camera.end);
      stage.invalidate();
    },
    { immediate: true },
  );
  watch(
    state.path,
    (on) => {
      stage.path = on;
      stage.invalidate();
    },
    { immediate: true },
  );
  watch(state.selected, () => ready.value && writeWindow());
  watch(state.win, (text) => text !== written && ready.value && readWindow());
  watch(
    layout,
    (now) => {
      stage.layout = now;
      stage.invalidate();
    },
    { immediate: true },
  );
  // The colors come from the style sheet, which changes slightly after the theme.
  watch(theme, () => void nextTick(() => stage.setTheme(theme.value)), { immediate: true });
  watch(
    [step, pair],
    ([name, both]) => {
      stage.selectedStep = name;
      stage.baseStep =
        both && main.value && base.value
          ? counterpartStep(name, main.value.meta.steps, base.value.meta.steps, both.base - both.current)
          : null;
      stage.invalidate();
    },
    { immediate: true },
  );
  // Another step or alignment mode resets the manual offset.
  watch([step, state.way], () => {
    if (state.offsets.value.has(BASE))
      state.offsets.value = new Map([...state.offsets.value].filter(([worker]) => worker !== BASE));
  });

  stage.lastDrawn = (scene: Scene, moving: boolean) => {
    const { start, end } = stage.camera;
    if (visible.value.start !== start || visible.value.end !== end) visible.value = { start, end };
    frame.value += 1;
    if (!moving) refreshEmpty();
    if (scene.requests.every((wish) => wish.rank > 0)) for (const source of sources.value) void source.loadRest();
  };
  onScopeDispose(() => {
    clearTimeout(addressTimer);
    stage.dispose();
  });

  const scrollTo = shallowRef<(y: number) => void>(() => undefined);

  function sourceOf(worker: number): TraceSource | undefined {
    return sources.value.find((source) => source.id.worker === worker);
  }

  /** The time range of an event on the page's axis. */
  function rangeOf(source: TraceSource, place: EventLocation): Range {
    const start = place.start_ns + source.offset;
    return { start, end: start + place.duration_ns };
  }

  /** Open and scroll to the track of an event, after the drawer has its height. */
  async function showTrack(worker: number, track: number, lane: number): Promise<void> {
    await new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume)));
    let row = trackRow(layout.value, worker, track);
    if (!row) {
      state.filter.value = "";
      state.hideEmpty.value = false;
      await nextTick();
      row = trackRow(layout.value, worker, track);
    }
    for (let tries = 0; row && !row.item && tries < 2; tries += 1) {
      state.toggleFold(row.key);
      await new Promise((resume) => setTimeout(resume));
      await nextTick();
      row = trackRow(layout.value, worker, track);
    }
    if (!row || row.pinned) return;
    const box = laneBox(row, track, lane);
    const room = stage.height - layout.value.pinnedHeight;
    const y = row.y + (box?.top ?? 0);
    if (y < stage.scroll + 8 || y + (box?.height ?? 0) > stage.scroll + room - 8) scrollTo.value(y - room / 3);
  }

  const timeline = {
    stage,
    state,
    sources,
    error,
    pending,
    ready,
    main,
    base,
    pair,
    branches,
    layout,
    visible,
    extent,
    frame,
    scrollTo,
    sourceOf,
    rangeOf,
    showTrack,
    moved,
    writeWindow,
    fit: (range: Range, air = 0.1) => {
      stage.camera.fit(range, air);
      moved();
    },
    reset: () => {
      const { whole } = stage.camera;
      stage.camera.set(whole.start, whole.end);
      moved();
    },
  };
  provide(KEY, timeline);
  return timeline;
}
