// The selected time range, kept in the address. Dragging over the curve sets it.
import { computed, watch, type ComputedRef } from "vue";
import { patchQuery, queryValue, span } from "../../state";

export interface TimeWindow {
  start_ns: number;
  end_ns: number;
}

function parseInteger(text: string | null): number | null {
  return text !== null && /^\d{1,16}$/.test(text) ? Number(text) : null;
}

export function parseWindow(start: string | null, end: string | null): TimeWindow | null {
  const [startNs, endNs] = [parseInteger(start), parseInteger(end)];
  return startNs !== null && endNs !== null && endNs > startNs ? { start_ns: startNs, end_ns: endNs } : null;
}

/** Convert a drag to whole nanoseconds that cover at least the dragged range. */
export function dragWindow(from: number, to: number): TimeWindow {
  const startNs = Math.max(0, Math.floor(from));
  return { start_ns: startNs, end_ns: Math.max(startNs + 1, Math.ceil(to)) };
}

export function useTimeWindow(): { shown: ComputedRef<TimeWindow | null>; choose: (next: TimeWindow | null) => void } {
  // The time range does not apply to another file.
  watch(
    () => span.value?.file,
    (file, before) =>
      before !== undefined && file !== before && patchQuery({ start_ns: null, end_ns: null, device: null }),
  );
  const chosenWindow = computed(() => parseWindow(queryValue("start_ns"), queryValue("end_ns")));
  return {
    shown: chosenWindow,
    choose: (next) =>
      patchQuery({ start_ns: next ? String(next.start_ns) : null, end_ns: next ? String(next.end_ns) : null }, true),
  };
}
