// Which columns hold nothing, so that they need not be shown.
import { shallowRef, watch, type ShallowRef } from "vue";
import type { Table } from "../api/model";

/** Columns in which these rows know nothing at all. */
export function emptyColumns(table: Table): Set<string> {
  return new Set(
    Object.entries(table.columns)
      .filter(([, cells]) => cells && cells.length > 0 && cells.every((cell) => cell === null || cell === ""))
      .map(([name]) => name),
  );
}

/**
 * The empty columns of a table, judged once for each `key()`: by its first rows, or, when those were searched for,
 * again by the first rows of the whole table. Columns must not come and go while one sorts.
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
