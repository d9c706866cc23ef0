// The stretch of time that the page looks at, in the address; dragging over the curve sets it.
import { computed, watch, type ComputedRef } from "vue";
import { patch_query, query_value, span } from "../../state";

export interface TimeWindow {
  start_ns: number;
  end_ns: number;
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,16}$/.test(text) ? Number(text) : null;
}

export function parse_window(start: string | null, end: string | null): TimeWindow | null {
  const [start_ns, end_ns] = [whole(start), whole(end)];
  return start_ns !== null && end_ns !== null && end_ns > start_ns ? { start_ns, end_ns } : null;
}

/** The drag of a pointer as whole nanoseconds that hold at least what it covered. */
export function window_of(from: number, to: number): TimeWindow {
  const start_ns = Math.max(0, Math.floor(from));
  return { start_ns, end_ns: Math.max(start_ns + 1, Math.ceil(to)) };
}

export function useTimeWindow(): { shown: ComputedRef<TimeWindow | null>; choose: (next: TimeWindow | null) => void } {
  // In another file the stretch of time is another one.
  watch(
    () => span.value?.file,
    (file, before) =>
      before !== undefined && file !== before && patch_query({ start_ns: null, end_ns: null, device: null }),
  );
  const shown = computed(() => parse_window(query_value("start_ns"), query_value("end_ns")));
  return {
    shown,
    choose: (next) =>
      patch_query({ start_ns: next ? String(next.start_ns) : null, end_ns: next ? String(next.end_ns) : null }, true),
  };
}
