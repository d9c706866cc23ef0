// The order of a table's rows, by one column or several. It is stored in the address.
import { computed, type WritableComputedRef } from "vue";
import type { Query } from "../../api/client";
import type { SortKey, SortKeys } from "../../lib/sort-rows";
import { patchQuery, queryValue } from "../../state/address";
import type { Column } from "./columns";

/** Parse the values of `sort` and `order`: names of columns, and one direction for all or one for each. */
export function parseSort(sort: string, order: string): SortKey[] {
  const directions = order.split(",");
  return sort
    .split(",")
    .filter(Boolean)
    .map((column, i) => ({ column, descending: (directions[i] ?? directions.at(-1)) !== "asc" }));
}

/** Return the values of `sort` and `order`; null for the default, so that addresses stay short. */
export function sortQuery(keys: SortKeys): { sort: string | null; order: string | null } {
  const directions = keys.map(({ descending }) => (descending ? "desc" : "asc"));
  const order = new Set(directions).size > 1 ? directions.join(",") : directions[0];
  return {
    sort: keys.map(({ column }) => column).join(",") || null,
    order: order === "asc" || order?.includes(",") ? order : null,
  };
}

/**
 * Return the order after a click on a column: its usual direction first, then the opposite. `add` keeps the other
 * columns; the third click removes the column again.
 */
export function nextSort(keys: SortKeys, column: Column, add: boolean): SortKeys {
  const usual = column.numeric && !column.ascendingFirst;
  const present = keys.find((key) => key.column === column.name);
  const next = { column: column.name, descending: present ? !present.descending : usual };
  if (!add) return [keys[0] === present ? next : { ...next, descending: usual }];
  if (!present) return [...keys, next];
  if (present.descending !== usual && keys.length > 1) return keys.filter((key) => key !== present);
  return keys.map((key) => (key === present ? next : key));
}

/** Return the order in the address, under `sort` and `order` with a prefix. */
export function useSort(prefix = "", fallback: () => SortKeys = () => []): WritableComputedRef<SortKeys> {
  return computed({
    get: () => {
      const keys = parseSort(queryValue(`${prefix}sort`) ?? "", queryValue(`${prefix}order`) ?? "");
      return keys.length > 0 ? keys : fallback();
    },
    set: (keys) => {
      const { sort, order } = sortQuery(keys);
      patchQuery({ [`${prefix}sort`]: sort, [`${prefix}order`]: order });
    },
  });
}

/** Return the order as parameters of a request. */
export function requestedSort(keys: SortKeys): Query {
  const { sort, order } = sortQuery(keys);
  return { sort, order: sort && (order ?? "desc") };
}
