// The options of the filter bar, kept in the address under the view's parameter names.
import { computed } from "vue";
import type { Query } from "../../api/client";
import type { SortKeys } from "../../lib/sort-rows";
import { patchQuery, queryValue, useParameter } from "../../state/address";

const FILTER_KEYS = [
  "time",
  "top_end_key",
  "type",
  "opr_name",
  "input_dtype",
  "min_time",
  "max_time",
  "aggregate",
  "aggregate_by",
  "top",
  "copy_time",
] as const;

export type Filters = ReturnType<typeof useFilters>;

export function useFilters() {
  const type = useParameter("type", "");
  const aggregate = useParameter("aggregate", "");
  // Most users want rows by type; a single row for all is the exception.
  const grouping = useParameter("aggregate_by", "type");
  const parameters = {
    time: useParameter("time", "device"),
    top_end_key: useParameter("top_end_key", "end"),
    opr_name: useParameter("opr_name", ""),
    input_dtype: useParameter("input_dtype", ""),
    min_time: useParameter("min_time", ""),
    max_time: useParameter("max_time", ""),
    top: useParameter("top", ""),
    copy_time: useParameter("copy_time", ""),
  };
  return {
    ...parameters,
    aggregate,
    by: grouping,
    types: computed<string[]>({ get: () => split(type.value), set: (list) => (type.value = list.join(",")) }),
    active: computed(() => FILTER_KEYS.some((key) => queryValue(key) !== null)),
    reset: () => patchQuery(Object.fromEntries(FILTER_KEYS.map((key) => [key, null]))),
    query: computed<Query>(() => ({
      ...Object.fromEntries(Object.entries(parameters).map(([key, value]) => [key, value.value])),
      type: type.value,
      aggregate: aggregate.value,
      aggregate_by: aggregate.value && grouping.value === "type" ? "type" : null,
    })),
  };
}

function split(text: string): string[] {
  return text
    .split(",")
    .map((entry) => entry.trim())
    .filter(Boolean);
}

const ORDERS: Record<string, string> = {
  device_self_ns: "time",
  host_self_ns: "time",
  ratio: "time",
  computation_flo: "computation",
  flops: "flops",
  memory_bytes: "memory",
  bandwidth: "bandwidth",
  id: "opr_id",
};

/**
 * Return the view's own order if it has one, so that cumulative times follow the rows and the first N are those of this
 * order. Null if only the finished table can be sorted.
 */
export function sortOrder(keys: SortKeys): Query | null {
  const [first] = keys;
  const key = first && keys.length === 1 ? ORDERS[first.column] : undefined;
  return key === undefined ? null : { order_by: first?.descending ? key : `+${key}` };
}

const UNITS: Record<string, number> = { s: 1, ms: 1e-3, us: 1e-6, µs: 1e-6, μs: 1e-6, ns: 1e-9 };

/** Parse "100", "100 us" and "1.5ms" as seconds; without a unit as milliseconds. Null if it is not a time. */
export function parseSeconds(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*([mnuµμ]?s)?\s*$/i.exec(text);
  const unit = UNITS[(match?.[2] ?? "ms").toLowerCase()];
  return match && unit !== undefined ? Number((Number(match[1]) * unit).toPrecision(12)) : null;
}
