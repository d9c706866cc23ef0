// Find empty columns, so that they can be hidden.
import { shallowRef, watch, type ShallowRef } from "vue";
import type { Table } from "../../api/model";

/** Return the columns that are unknown in all of these rows. */
export function emptyColumns(table: Table): Set<string> {
  return new Set(
    Object.entries(table.columns)
      .filter(([, cells]) => cells && cells.length > 0 && cells.every((cell) => cell === null || cell === ""))
      .map(([name]) => name),
  );
}

/**
 * Return the empty columns of a table, determined once per `key()` from its first rows. If those were filtered, they
 * are determined again from the first rows of the full table. Columns must not come and go while a user sorts.
 */
export function useEmptyColumns(answer: ShallowRef<Table | null>, key: () => string): ShallowRef<Set<string>> {
  const empty = shallowRef(new Set<string>());
  let judged = { key: "", whole: false };

  watch(answer, (table) => {
    if (!table) return;
    const isComplete = (table.matching_rows ?? table.total_rows) === table.total_rows;
    if (judged.key === key() && (judged.whole || !isComplete)) return;
    judged = { key: key(), whole: isComplete };
    empty.value = emptyColumns(table);
  });
  return empty;
}
