// The selected event: where it is, what is known about it, and where its links lead.
import { computed, shallowRef, watch } from "vue";
import { address, type ApiError, as_error, get, type Query } from "../../api/client";
import { patch_query, query_value, useLatest } from "../../state";
import type { EventDetails, Place, Range } from "./model";
import type { Source } from "./source";
import type { Timeline } from "./timeline";
import { text_numbers } from "./url";

/** Room beside an event that a link leads to, in its lengths. */
const LINK_AIR = 1.5;
const CLOSE_AIR = 0.15;
const AREA_AIR = 0.25;

export type Selection = ReturnType<typeof useSelection>;

export function useSelection(timeline: Timeline) {
  const { state, stage } = timeline;
  const details = shallowRef<EventDetails | null>(null);
  const error = shallowRef<ApiError | null>(null);
  /** The raw arguments come from the file itself, which may take a moment longer. */
  const waiting = shallowRef(false);
  const source = computed<Source | null>(
    () => (state.selected.value && timeline.source_of(state.selected.value.worker)) ?? null,
  );
  const next_signal = useLatest();
  // An address with an event but no window comes from another page: it means "show me this one".
  let go_there = state.selected.value !== null && state.win.value === "";
  let air = LINK_AIR;
  /** The event that a link leads to, until what stands beside it is known. */
  const landing = shallowRef<number | null>(null);

  async function load(from: Source, event: number): Promise<void> {
    const signal = next_signal();
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
      error.value = as_error(failure);
      if (details.value?.event !== event) details.value = null;
    }
    waiting.value = false;
  }

  function show(found: EventDetails): void {
    details.value = found;
    if (go_there) {
      landing.value = air === LINK_AIR ? found.event : null;
      void reveal(found, air);
    }
    go_there = false;
  }

  /** Zooms to the selected event, now or as soon as its place is known. */
  function zoom(): void {
    const found = details.value;
    if (found && found.event === state.selected.value?.event) void reveal(found, CLOSE_AIR);
    else {
      go_there = true;
      air = CLOSE_AIR;
    }
  }

  async function reveal(place: Place, room: number): Promise<void> {
    if (!source.value) return;
    stage.camera.fit(timeline.range_of(source.value, place), room);
    timeline.moved();
    await timeline.show_track(source.value.id.worker, place.track, place.lane);
  }

  watch(
    [source, () => state.selected.value?.event],
    ([from, event]) => {
      if (from && event !== undefined) {
        if (details.value?.event !== event) details.value = null;
        void load(from, event);
      } else {
        next_signal();
        details.value = null;
        error.value = null;
      }
    },
    { immediate: true },
  );

  watch(
    [details, source],
    ([place, from]) =>
      stage.mark({ selected: place && from ? { source: from, place } : null, links: place?.links ?? [] }),
    { immediate: true },
  );

  function select(worker: number, event: number): void {
    state.selected.value = { worker, event };
  }

  /** Selects an event and moves as little as needed to see it. */
  function go_to(worker: number, place: Place): void {
    select(worker, place.event);
    const from = timeline.source_of(worker);
    if (!from) return;
    stage.camera.reveal(timeline.range_of(from, place));
    timeline.moved();
    void timeline.show_track(worker, place.track, place.lane);
  }

  /** Along the links: to the effects, or back to the causes. */
  function follow(direction: "to" | "from"): void {
    const link = details.value?.links.find((one) => one.direction === direction);
    if (link && source.value) go_to(source.value.id.worker, link);
  }

  /** Links of other pages name a stretch of time, or an event by what it is: the longest of that name. */
  async function find_linked(): Promise<void> {
    const name = query_value("longest");
    const span = query_value("at_span");
    const from = timeline.main.value;
    if (span !== null && from) {
      const [start, end, track] = text_numbers(span);
      patch_query({ at_span: null });
      if (start !== undefined && end !== undefined && end > start)
        show_area({ start: start + from.offset, end: end + from.offset });
      if (track !== undefined) await timeline.show_track(from.id.worker, track, 0);
    }
    if (name === null || !from) return;
    const where = query_value("where");
    patch_query({ longest: null, where: null });
    try {
      const found = await get<Place>(address("timeline/longest", { ...from.id.query, name, where }));
      if (!found) return;
      landing.value = found.body.event;
      select(from.id.worker, found.body.event);
      stage.camera.fit(timeline.range_of(from, found.body), LINK_AIR);
      timeline.moved();
      await timeline.show_track(from.id.worker, found.body.track, found.body.lane);
    } catch (failure) {
      error.value = as_error(failure);
    }
  }
  watch(
    [timeline.ready, () => query_value("longest"), () => query_value("at_span")],
    ([ready]) => ready && void find_linked(),
    { immediate: true },
  );

  function show_area(range: Range): void {
    timeline.fit(range, AREA_AIR);
    state.area.value = { ...range, tracks: [] };
  }

  return {
    details,
    error,
    waiting,
    source,
    landing,
    select,
    go_to,
    follow,
    zoom,
    clear: () => (state.selected.value = null),
  };
}
