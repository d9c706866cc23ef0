// Search over all events of the shown workers: count, next and previous, ticks, highlights.
import { computed, shallowRef, watch } from "vue";
import { address, type ApiError, asError, get } from "../../api/client";
import { useLatestSignal } from "../../state/abort-signals";
import type { EventLocation, SearchAnswer } from "./model";
import type { Selection } from "./selection";
import type { TraceSource } from "./trace-source";
import type { Timeline } from "./timeline";

const MAX_PLACES = 10_000;

interface SourceMatches {
  source: TraceSource;
  answer: SearchAnswer;
}

export type Finder = ReturnType<typeof useFinder>;

export function useFinder(timeline: Timeline, selection: Selection) {
  const { state, stage, sources } = timeline;
  const results = shallowRef<SourceMatches[]>([]);
  const busy = shallowRef(false);
  const error = shallowRef<ApiError | null>(null);
  const nextSignal = useLatestSignal();

  const total = computed(() => results.value.reduce((sum, { answer }) => sum + answer.total, 0));
  /** In order of time; at most the first ten thousand. */
  const places = computed(() =>
    results.value
      .flatMap(({ source, answer }) =>
        answer.events.map((event) => ({ source, place: event, at: event.start_ns + source.offset })),
      )
      .sort((a, b) => a.at - b.at),
  );
  const current = computed(() => {
    const chosen = state.selected.value;
    return chosen
      ? places.value.findIndex(
          ({ source, place }) => source.id.worker === chosen.worker && place.event === chosen.event,
        )
      : -1;
  });

  async function run(text: string, loaded: readonly TraceSource[]): Promise<void> {
    const signal = nextSignal();
    for (const source of loaded) source.names.search = text;
    error.value = null;
    if (!text) {
      results.value = [];
      busy.value = false;
      return;
    }
    busy.value = true;
    try {
      const answers = await Promise.all(
        loaded.map(async (source) => ({
          source,
          answer: (
            await get<SearchAnswer>(address("timeline/search", { ...source.id.query, text, limit: MAX_PLACES }), {
              signal,
            })
          )?.body,
        })),
      );
      results.value = answers.flatMap(({ source, answer }) => (answer ? [{ source, answer }] : []));
    } catch (failure) {
      if (signal.aborted) return;
      error.value = asError(failure);
      results.value = [];
    }
    busy.value = false;
  }

  watch([state.search, sources], ([text, loaded]) => void run(text, loaded), { immediate: true });
  watch(
    [results, state.search],
    ([newResults, text]) => {
      stage.setMarks({
        matches: newResults.map(({ source, answer }) => ({ source, places: answer.events as EventLocation[] })),
        searching: text !== "" && newResults.some(({ answer }) => answer.total > 0),
      });
      stage.recolor();
    },
    { immediate: true },
  );

  /** Move from the selected match, or from the middle of the window. */
  function move(delta: 1 | -1): void {
    const matches = places.value;
    if (matches.length === 0) return;
    const middle = (stage.camera.start + stage.camera.end) / 2;
    const after = matches.findIndex(({ at }) => at >= middle);
    const start = after < 0 ? matches.length : after;
    const next = current.value >= 0 ? current.value + delta : delta > 0 ? start : start - 1;
    const target = matches[(next + matches.length) % matches.length];
    if (target) selection.goTo(target.source.id.worker, target.place);
  }

  return { found: results, total, places, current, busy, error, move };
}
