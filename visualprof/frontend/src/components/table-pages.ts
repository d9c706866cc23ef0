// The rows of a server table, fetched in pages as the reader scrolls to them.
import { shallowRef, watch, type Ref, type ShallowRef } from "vue";
import { get, type ApiError } from "../api/client";
import type { Cell, Columns, Table } from "../api/model";
import { useLatest } from "../state/latest";
import { useResource } from "../state/resource";

export const PAGE_ROWS = 200;

export interface TablePages<T extends Table> {
  /** The first page, with whatever the view says beside its table. */
  first: ShallowRef<T | null>;
  error: ShallowRef<ApiError | null>;
  loading: Ref<boolean>;
  cell: (row: number, column: string) => Cell | undefined;
  /** Tells that these rows are on screen. */
  need: (from: number, to: number) => void;
}

export function useTablePages<T extends Table>(address_at: (offset: number) => string | null, stamp: () => unknown): TablePages<T> {
  const { data: first, error, loading } = useResource<T>(() => address_at(0), stamp);
  const rest: ShallowRef<Map<number, Columns>> = shallowRef(new Map());
  let asked = new Set<number>();
  const next_signal = useLatest();
  let signal = next_signal();

  watch(first, () => {
    signal = next_signal();
    asked = new Set();
    rest.value = new Map();
  });

  async function load(page: number): Promise<void> {
    const target = address_at(page * PAGE_ROWS);
    if (target === null) return;
    const pages = asked;
    pages.add(page);
    try {
      const answer = await get<Table>(target, { signal });
      if (answer && pages === asked) rest.value = new Map(rest.value).set(page, answer.body.columns);
    } catch {
      // The rows stay blank and are asked for again when they next come into sight.
      pages.delete(page);
    }
  }

  function need(from: number, to: number): void {
    for (let page = Math.floor(from / PAGE_ROWS); page <= Math.floor(to / PAGE_ROWS); page += 1) {
      if (page > 0 && !asked.has(page)) void load(page);
    }
  }

  function cell(row: number, column: string): Cell | undefined {
    const page = Math.floor(row / PAGE_ROWS);
    const columns = page === 0 ? first.value?.columns : rest.value.get(page);
    return columns?.[column]?.[row % PAGE_ROWS];
  }

  return { first, error, loading, cell, need };
}
