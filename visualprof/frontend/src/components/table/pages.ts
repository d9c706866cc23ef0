// The rows of a server table, loaded in pages while the user scrolls.
import { computed, shallowRef, watch, type ComputedRef, type Ref, type ShallowRef } from "vue";
import { get, type ApiError, type Cell, type Table } from "../../api";
import { useLatestSignal, useResource } from "../../state";

export const PAGE_ROWS = 200;

export interface TablePages<T extends Table> {
  /** The first page, including other fields of the view's answer. */
  first: ComputedRef<T | null>;
  error: ShallowRef<ApiError | null>;
  loading: Ref<boolean>;
  cell: (row: number, column: string) => Cell | undefined;
  /** Return the short name of a kernel, other texts unchanged. */
  shortName: (text: string) => string;
  /** Load these rows, because they are on screen. */
  need: (from: number, to: number) => void;
}

/** `preloaded()`: the first page, if another answer has included it. */
export function useTablePages<T extends Table>(
  addressAt: (offset: number) => string | null,
  stamp: () => unknown,
  preloaded: () => T | null = () => null,
): TablePages<T> {
  const { data, error, loading } = useResource<T>(() => (preloaded() ? null : addressAt(0)), stamp);
  const first = computed(() => preloaded() ?? data.value);
  const rest: ShallowRef<Map<number, Table>> = shallowRef(new Map());
  let requestedPages = new Set<number>();
  const nextSignal = useLatestSignal();
  let signal = nextSignal();

  watch(first, () => {
    signal = nextSignal();
    requestedPages = new Set();
    rest.value = new Map();
  });

  async function load(page: number): Promise<void> {
    const target = addressAt(page * PAGE_ROWS);
    if (target === null) return;
    const pages = requestedPages;
    pages.add(page);
    try {
      const answer = await get<Table>(target, { signal });
      if (answer && pages === requestedPages) rest.value = new Map(rest.value).set(page, answer.body);
    } catch {
      // The rows stay blank and are requested again when they are next visible.
      pages.delete(page);
    }
  }

  function loadRow(from: number, to: number): void {
    for (let page = Math.floor(from / PAGE_ROWS); page <= Math.floor(to / PAGE_ROWS); page += 1) {
      if (page > 0 && !requestedPages.has(page)) void load(page);
    }
  }

  function cell(row: number, column: string): Cell | undefined {
    const page = Math.floor(row / PAGE_ROWS);
    const table = page === 0 ? first.value : rest.value.get(page);
    return table?.columns[column]?.[row % PAGE_ROWS];
  }

  const shortNames = computed<Record<string, string>>(() =>
    Object.assign({}, first.value?.short_names, ...[...rest.value.values()].map((table) => table.short_names)),
  );
  const shortName = (text: string): string => shortNames.value[text] ?? text;

  return { first, error, loading, cell, shortName, need: loadRow };
}
