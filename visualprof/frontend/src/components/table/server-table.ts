// The rows of a view's table, in the requested order.
import { computed, type ComputedRef } from "vue";
import { offlineReport, type Query, type Table } from "../../api";
import type { SortKeys } from "../../lib/sort-rows";
import { dataStamp, viewAddress } from "../../state";
import { PAGE_ROWS, useTablePages, type TablePages } from "./pages";
import { requestedSort } from "./sort-keys";

/** Where the rows of a table come from. */
export interface RowSource<T extends Table = Table> {
  view: string;
  /** The table of the view, if it has several. */
  table?: string | undefined;
  /** The path to request, if it is not the view. */
  path?: string;
  query?: Query;
  /** The column that names a row in links; `name` if it is not given. */
  rowKey?: string;
  /** The table in the view's other answer. It is requested only if it is sorted or has more rows. */
  known?: T | undefined;
  /** Returns the query for an order if the view has a parameter of its own for it; null means `sort`. */
  ordering?: (keys: SortKeys) => Query | null;
}

export interface ServerTable<T extends Table> {
  path: ComputedRef<string>;
  /** The complete query, which an export also uses. */
  query: ComputedRef<Query>;
  pages: TablePages<T>;
}

export function useServerTable<T extends Table>(source: () => RowSource<T>, sort: () => SortKeys): ServerTable<T> {
  const path = computed(() => source().path ?? `view/${source().view}`);
  const query = computed<Query>(() => {
    const own = sort().length > 0 && !offlineReport ? source().ordering?.(sort()) : null;
    return { ...source().query, table: source().table, ...(own ?? requestedSort(sort())) };
  });

  /** Return the first page if another answer has it whole. */
  function preloaded(): T | null {
    const known = source().known;
    const isWhole = known && known.total_rows === Object.values(known.columns)[0]?.length;
    return isWhole && sort().length === 0 ? known : null;
  }

  const pages = useTablePages<T>(
    (offset) => viewAddress(path.value, { ...query.value, offset: offset || null, limit: PAGE_ROWS }),
    () => dataStamp(path.value),
    preloaded,
  );
  return { path, query, pages };
}
