// The base's curve on the time axis of the current run, moved so that the steps start together, and the difference of
// both.
import { computed } from "vue";
import { address, type ChartsAnswer, type Json, type JsonObject, type Query, type Schemas } from "../../api";
import { pairSteps, alignmentShift } from "../../compare/step-alignment";
import { baseQuery, baseStep, comparedStamp, selectedQuery, step, useResource } from "../../state";
import type { TimeWindow } from "./time-window";

export type Point = readonly [x: number, y: number];
type Meta = Schemas["TimelineMeta"];
const ALLOCATED = "@t:memory.allocated";

/** Return the values of a curve at ascending times: the last value up to each time, null before the first. */
export function valuesAt(curve: readonly Point[], instants: readonly number[]): (number | null)[] {
  let next = 0;
  return instants.map((at) => {
    while (next < curve.length && (curve[next]?.[0] ?? 0) <= at) next += 1;
    return curve[next - 1]?.[1] ?? null;
  });
}

/** Return the current curve minus the base while both are known: from the later start to the earlier end. */
export function curveDifference(current: readonly Point[], base: readonly Point[]): Point[] {
  const until = Math.min(current.at(-1)?.[0] ?? -Infinity, base.at(-1)?.[0] ?? -Infinity);
  const instants = [...new Set([...current, ...base].map(([x]) => x))].filter((x) => x <= until).sort((a, b) => a - b);
  const [a, b] = [valuesAt(current, instants), valuesAt(base, instants)];
  return instants.flatMap((x, index) => {
    const [currentValue, theirs] = [a[index], b[index]];
    return currentValue == null || theirs == null ? [] : [[x, currentValue - theirs] as const];
  });
}

function allocatedCurve(chart: JsonObject | undefined): Point[] {
  const series = (chart?.["series"] ?? []) as unknown as { name: string; data: Point[] }[];
  return series.find((series) => series.name === ALLOCATED)?.data ?? [];
}

const maxPoint = (curve: readonly Point[]) =>
  curve.length > 0 ? curve.reduce((best, [, y]) => Math.max(best, y), -Infinity) : null;

/** The maximum of the drawn points; reduced curves keep their largest values. */
export interface Peaks {
  now: number | null;
  before: number | null;
}

export function findPeaks(current: JsonObject | undefined, base: JsonObject | undefined): Peaks {
  return { now: maxPoint(allocatedCurve(current)), before: maxPoint(allocatedCurve(base)) };
}

/** Add the base's curve, shifted by `shift` ns, and the difference to the current run's chart. */
export function addBaseCurve(current: JsonObject, base: JsonObject, shift: number): JsonObject {
  const shifted = allocatedCurve(base).map(([x, y]): Point => [x + shift, y]);
  const line = (name: string, data: readonly Point[], dashes: number[], more: JsonObject): Json => ({
    type: "line",
    step: "end",
    showSymbol: false,
    name,
    data: data as unknown as Json,
    lineStyle: { type: dashes },
    ...more,
  });
  const added = [
    line("@t:memory.base_allocated", shifted, [6, 3], { itemStyle: { color: "@c:infer_shape" } }),
    line("@t:memory.difference", curveDifference(allocatedCurve(current), shifted), [1, 2], {
      itemStyle: { color: "@c:limit" },
      areaStyle: { opacity: 0.12 },
    }),
  ];
  return { ...current, series: [...(current["series"] as Json[]), ...added] };
}

export function useBaseCurve(device: () => string | null, time: () => TimeWindow | null) {
  const curveUrl = (query: Query | null) =>
    baseQuery.value && query ? address("timeline/meta", { ...query, minimap: 0, counters: 0 }) : null;
  const { data: ownMeta } = useResource<Meta>(
    () => curveUrl(selectedQuery.value),
    () => comparedStamp.value,
  );
  const { data: baseMeta } = useResource<Meta>(
    () => curveUrl(baseQuery.value),
    () => comparedStamp.value,
  );
  const steps = computed(() =>
    ownMeta.value && baseMeta.value ? ([ownMeta.value.steps, baseMeta.value.steps] as const) : null,
  );
  const pair = computed(() => steps.value && pairSteps(...steps.value, "step", step.value, baseStep.value));
  const shift = computed(() => (steps.value ? alignmentShift(...steps.value, pair.value) : 0));
  /** Whether the base has no counterpart of the chosen step. */
  const noCommonStep = computed(() => steps.value !== null && step.value !== null && pair.value === null);

  const url = computed(() => {
    const [base, deviceId, range] = [baseQuery.value, device(), time()];
    if (!base || deviceId === null || !steps.value || noCommonStep.value) return null;
    // Before the base's first event there is no value.
    const window = range && {
      start_ns: Math.max(0, Math.round(range.start_ns - shift.value)),
      end_ns: Math.round(range.end_ns - shift.value),
    };
    return window && window.end_ns <= 0
      ? null
      : address("charts/memory", {
          run: base["run"],
          worker: base["worker"],
          span: base["span"],
          step: baseStep.value,
          device: deviceId,
          ...window,
        });
  });
  const { data, error } = useResource<ChartsAnswer>(
    () => url.value,
    () => comparedStamp.value,
  );
  const curve = computed(() => (url.value ? data.value?.charts["curve"] : undefined));
  return { curve, shift, error, apart: noCommonStep };
}
