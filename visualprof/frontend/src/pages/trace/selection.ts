// The selected event: its location, its details, and its links.
import { computed, shallowRef, watch } from "vue";
import { address, type ApiError, asError, get, type Query } from "../../api/client";
import { patchQuery, queryValue, useLatestSignal } from "../../state";
import type { EventDetails, EventLocation, Range } from "./model";
import type { TraceSource } from "./trace-source";
import type { Timeline } from "./timeline";
import { parseNumbers } from "./url-state";

/** Margin around an event after following a link, in its lengths. */
const LINK_MARGIN = 1.5;
const ZOOM_MARGIN = 0.15;
const AREA_MARGIN = 0.25;

export type Selection = ReturnType<typeof useSelection>;

export function useSelection(timeline: Timeline) {
  const { state, stage } = timeline;
  const details = shallowRef<EventDetails | null>(null);
  const error = shallowRef<ApiError | null>(null);
  /** The raw arguments are read from the file and may arrive later. */
  const waiting = shallowRef(false);
  const source = computed<TraceSource | null>(
    () => (state.selected.value && timeline.sourceOf(state.selected.value.worker)) ?? null,
  );
  const nextSignal = useLatestSignal();
  // An address with an event but no window comes from another page and means "show this event".
  let goThere = state.selected.value !== null && state.win.value === "";
  let air = LINK_MARGIN;
  /** The target event of a link, until its counterpart is known. */
  const landing = shallowRef<number | null>(null);

  async function load(from: TraceSource, event: number): Promise<void> {
    const signal = nextSignal();
    const query: Query = { ...from.id.query, v: from.meta.version, event };
    waiting.value = true;
    error.value = null;
    try {
      const quick = await get<EventDetails>(address("timeline/event", { ...query, arguments: 0 }), { signal });
      if (quick) show(quick.body);
      const full = await get<EventDetails>(address("timeline/event", query), { signal });
      if (full) details.value = full.body;
    } catch (failure) {
      if (signal.aborted) return;
      error.value = asError(failure);
      if (details.value?.event !== event) details.value = null;
    }
    waiting.value = false;
  }

  function show(newDetails: EventDetails): void {
    details.value = newDetails;
    if (goThere) {
      landing.value = air === LINK_MARGIN ? newDetails.event : null;
      void reveal(newDetails, air);
    }
    goThere = false;
  }

  /** Zoom to the selected event, immediately or when its location is known. */
  function zoom(): void {
    const shownDetails = details.value;
    if (shownDetails && shownDetails.event === state.selected.value?.event) void reveal(shownDetails, ZOOM_MARGIN);
    else {
      goThere = true;
      air = ZOOM_MARGIN;
    }
  }

  async function reveal(place: EventLocation, room: number): Promise<void> {
    if (!source.value) return;
    stage.camera.fit(timeline.rangeOf(source.value, place), room);
    timeline.moved();
    await timeline.showTrack(source.value.id.worker, place.track, place.lane);
  }

  watch(
    [source, () => state.selected.value?.event],
    ([from, event]) => {
      if (from && event !== undefined) {
        if (details.value?.event !== event) details.value = null;
        void load(from, event);
      } else {
        nextSignal();
        details.value = null;
        error.value = null;
      }
    },
    { immediate: true },
  );

  watch(
    [details, source],
    ([place, from]) =>
      stage.setMarks({ selected: place && from ? { source: from, place } : null, links: place?.links ?? [] }),
    { immediate: true },
  );

  function select(worker: number, event: number): void {
    state.selected.value = { worker, event };
  }

  /** Select an event and move only as far as needed to show it. */
  function goTo(worker: number, place: EventLocation): void {
    select(worker, place.event);
    const from = timeline.sourceOf(worker);
    if (!from) return;
    stage.camera.reveal(timeline.rangeOf(from, place));
    timeline.moved();
    void timeline.showTrack(worker, place.track, place.lane);
  }

  /** Follow links to the effects, or back to the causes. */
  function follow(direction: "to" | "from"): void {
    const link = details.value?.links.find((candidate) => candidate.direction === direction);
    if (link && source.value) goTo(source.value.id.worker, link);
  }

  /** Links of other pages name a time range, or an event by name: the longest one. */
  async function findLinked(): Promise<void> {
    const name = queryValue("longest");
    const span = queryValue("at_span");
    const from = timeline.main.value;
    if (span !== null && from) {
      const [start, end, track] = parseNumbers(span);
      patchQuery({ at_span: null });
      if (start !== undefined && end !== undefined && end > start)
        showArea({ start: start + from.offset, end: end + from.offset });
      if (track !== undefined) await timeline.showTrack(from.id.worker, track, 0);
    }
    if (name === null || !from) return;
    const where = queryValue("where");
    patchQuery({ longest: null, where: null });
    try {
      const longest = await get<EventLocation>(address("timeline/longest", { ...from.id.query, name, where }));
      if (!longest) return;
      landing.value = longest.body.event;
      select(from.id.worker, longest.body.event);
      stage.camera.fit(timeline.rangeOf(from, longest.body), LINK_MARGIN);
      timeline.moved();
      await timeline.showTrack(from.id.worker, longest.body.track, longest.body.lane);
    } catch (failure) {
      error.value = asError(failure);
    }
  }
  watch(
    [timeline.ready, () => queryValue("longest"), () => queryValue("at_span")],
    ([ready]) => ready && void findLinked(),
    { immediate: true },
  );

  function showArea(range: Range): void {
    timeline.fit(range, AREA_MARGIN);
    state.area.value = { ...range, tracks: [] };
  }

  return {
    details,
    error,
    waiting,
    source,
    landing,
    select,
    goTo,
    follow,
    zoom,
    clear: () => (state.selected.value = null),
  };
}
