// The state of the page in the address: the device, the moment or range, and the filter that applies to every part.
// A report contains only the named moments and no filtered answers, so other choices have no effect there.
import { computed, type ComputedRef, type WritableComputedRef } from "vue";
import { offlineReport, type Query } from "../../api";
import { t } from "../../locales";
import { patchQuery, queryValue, step, useParameter } from "../../state";
import type { Hit } from "./tile";

/** Groupings whose rows can be a filter. */
export const GROUPS = ["line", "function", "file", "operator", "module", "category", "pool", "stream"] as const;
export type Group = (typeof GROUPS)[number];
/** Return the name of the group of blocks without a label. */
export function noGroup(group: Group): string {
  return t(`snapshot.no_${group === "module" || group === "operator" ? group : "stack"}`);
}

const FILTERS = [...GROUPS, "frame", "text"] as const;
export type Filter = (typeof FILTERS)[number];

export interface HeapState {
  device: WritableComputedRef<string>;
  /** The moment: an entry, or its name. */
  at: ComputedRef<string>;
  /** The moment to compare with; "" for none. */
  baseAt: ComputedRef<string>;
  /** Conditions of the blocks. */
  filter: ComputedRef<Query>;
  /** Whether a condition applies. */
  filtered: ComputedRef<boolean>;
  /** First and last entry of the selected range. */
  range: ComputedRef<{ first: number; last: number } | null>;
  /** The blocks of the tables: those of the range, else those alive at the moment. */
  selected: ComputedRef<Query>;
  /** The block whose details are shown. */
  block: ComputedRef<number | null>;
}

function parseEntry(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

export function useHeapState(): HeapState {
  const device = useParameter("device", "");
  const moment = computed(() => queryValue("at") ?? "peak");
  const at = computed(() => (moment.value === "peak" && step.value !== null ? step.value : moment.value));
  const filter = computed<Query>(() => Object.fromEntries(FILTERS.map((name) => [name, queryValue(name)])));
  const range = computed(() => {
    const [first, last] = [parseEntry(queryValue("first")), parseEntry(queryValue("last"))];
    return first !== null && last !== null && last >= first ? { first, last } : null;
  });
  return {
    device,
    at,
    baseAt: computed(() => queryValue("base_at") ?? ""),
    filter,
    filtered: computed(() => Object.values(filter.value).some((value) => value !== null)),
    range,
    selected: computed<Query>(() => ({
      device: device.value,
      ...filter.value,
      ...(range.value ?? { at: at.value }),
    })),
    block: computed(() => parseEntry(queryValue("shown_block"))),
  };
}

/** Show a moment, and the blocks that are alive then. */
export function showMoment(at: string): void {
  if (offlineReport && /^-?\d+$/.test(at)) return;
  patchQuery({ at, first: null, last: null }, true);
}

/** Show the blocks allocated in a range of entries; null for those alive at the moment. */
export function showRange(range: { first: number; last: number } | null): void {
  if (offlineReport) return;
  patchQuery({ first: range ? String(range.first) : null, last: range ? String(range.last) : null }, true);
}

export function showBlock(block: number | null): void {
  patchQuery({ shown_block: block === null ? null : String(block) });
}

/** Show the moment of a point of the chart and the block there, and filter by its line, or else by its category. */
export function showHit({ entry, block, category }: Hit): void {
  if (offlineReport) {
    if (block) showBlock(block.block);
    return;
  }
  patchQuery(
    {
      at: String(entry),
      first: null,
      last: null,
      ...(block && { shown_block: String(block.block) }),
      ...(block?.name ? { line: block.name } : category !== null && { category }),
    },
    true,
  );
}

/** Set a condition; the same value again removes it. */
export function setFilter(name: Filter, value: string): void {
  if (value !== "" && !offlineReport) patchQuery({ [name]: queryValue(name) === value ? null : value }, true);
}

export function clearFilter(): void {
  patchQuery(Object.fromEntries(FILTERS.map((name) => [name, null])), true);
}
