// The counterpart of the selected event in the other run: the event of the same name with as many predecessors in the
// step.
import { computed, shallowRef, watch } from "vue";
import { address, asError, get, type ApiError, type Schemas } from "../../api";
import { baseQuery, useLatestSignal } from "../../state";
import { BASE, alignmentShift, counterpartStep } from "../../compare/step-alignment";
import type { EventLocation } from "./model";
import type { Selection } from "./selection";
import type { TraceSource } from "./trace-source";
import type { Timeline } from "./timeline";

/** Margin around both events after following a link, in their lengths. */
const BOTH_MARGIN = 1;

export type Counterpart = ReturnType<typeof useCounterpart>;

export function useCounterpart(timeline: Timeline, selection: Selection) {
  const { state, stage, main, base, pair } = timeline;
  const match = shallowRef<{ event: number; of: TraceSource; answer: Schemas["Occurrence"] } | null>(null);
  const error = shallowRef<ApiError | null>(null);
  const nextSignal = useLatestSignal();

  const other = computed(() => (selection.source.value === base.value ? main.value : base.value));
  const place = computed<EventLocation | null>(() =>
    match.value?.event === selection.details.value?.event && match.value?.of === other.value
      ? (match.value?.answer.place ?? null)
      : null,
  );
  /** The step to search; null for the whole trace, undefined if the other run has no such step. */
  const baseStepName = computed<string | null | undefined>(() => {
    const [from, to, name] = [selection.source.value, other.value, selection.details.value?.step];
    if (!from || !to || name === undefined || name === null) return name;
    const shift = pair.value ? pair.value.base - pair.value.current : 0;
    return counterpartStep(name, from.meta.steps, to.meta.steps, from === base.value ? -shift : shift) ?? undefined;
  });

  async function findCounterpart(): Promise<void> {
    const signal = nextSignal();
    const [from, to, details] = [selection.source.value, other.value, selection.details.value];
    match.value = null;
    error.value = null;
    const kind = from?.meta.tracks.find((track) => track.id === details?.track)?.kind;
    if (!baseQuery.value) selection.landing.value = null;
    if (!from || !to || !details || !kind || baseStepName.value === undefined) return;
    try {
      const answer = await get<Schemas["Occurrence"]>(
        address("timeline/occurrence", {
          ...to.id.query,
          name: details.name,
          kind,
          step: baseStepName.value,
          nth: details.nth,
        }),
        { signal },
      );
      if (!answer) return;
      match.value = { event: details.event, of: to, answer: answer.body };
      if (selection.landing.value === details.event) goToCounterpart();
    } catch (failure) {
      if (!signal.aborted) error.value = asError(failure);
    }
  }
  // Details arrive twice, the second time with the raw arguments.
  watch([() => selection.details.value?.event, selection.source, other, baseStepName], () => void findCounterpart(), {
    immediate: true,
  });
  watch(
    [place, other],
    ([at, otherSource]) =>
      stage.setMarks({ counterpart: at && otherSource ? { source: otherSource, place: at } : null }),
    {
      immediate: true,
    },
  );

  /** Change the manual offset of the base so that both events start together. */
  function align(): void {
    const [from, details, at] = [selection.source.value, selection.details.value, place.value];
    if (!from || !details || !at || !main.value || !base.value) return;
    const [currentEvent, baseEvent] = from === base.value ? [at, details] : [details, at];
    const shift =
      currentEvent.start_ns -
      baseEvent.start_ns -
      alignmentShift(main.value.meta.steps, base.value.meta.steps, pair.value);
    state.offsets.value = new Map(state.offsets.value).set(BASE, shift);
  }

  /** Follow a link: show both events, starting together. */
  function goToCounterpart(): void {
    const details = selection.details.value;
    selection.landing.value = null;
    if (!details || !place.value || !selection.source.value) return;
    align();
    // Show their tracks one below the other, however far apart they are.
    const tracks = [
      `${selection.source.value.id.worker}.${details.track}`,
      `${other.value?.id.worker}.${place.value.track}`,
    ];
    state.pins.value = [...new Set([...state.pins.value, ...tracks])];
    const { start } = timeline.rangeOf(selection.source.value, details);
    timeline.fit({ start, end: start + Math.max(details.duration_ns, place.value.duration_ns) }, BOTH_MARGIN);
  }

  function go(): void {
    if (place.value && other.value) selection.goTo(other.value.id.worker, place.value);
  }

  return {
    other,
    place,
    error,
    calls: computed(() => match.value?.answer.calls ?? null),
    step: baseStepName,
    align,
    go,
  };
}
