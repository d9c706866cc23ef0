// The expanded rows of a table. They are in the address, so that they survive a reload, sorting and the Back button.
import { computed } from "vue";
import { useParameter } from "../../state/address";
import type { Column } from "./columns";
import type { TableRow } from "./rows";

const MAX_EXPANDED = 20;

/** Return a short hash of a text (cyrb53). */
function hash(text: string): string {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36).slice(-7);
}

/** Return what identifies a row whatever its position is; null while it is not loaded. Shares depend on other rows. */
export function rowKey(row: TableRow, columns: readonly Column[]): string | null {
  const names = columns.filter(({ kind }) => kind !== "ratio").map(({ name }) => name);
  const cells = names.sort().map(row);
  return cells.includes(undefined) ? null : hash(JSON.stringify(cells));
}

/** `parameter`: name in the address. `columns()`: all columns of the table, visible or not. */
export function useExpansion(parameter: string, columns: () => readonly Column[]) {
  const stored = useParameter(parameter, "");
  const keys = computed(() => stored.value.split(",").filter(Boolean));

  function toggle(row: TableRow): void {
    const key = rowKey(row, columns());
    if (key === null) return;
    const others = keys.value.filter((other) => other !== key);
    stored.value = (others.length < keys.value.length ? others : [...others, key].slice(-MAX_EXPANDED)).join(",");
  }

  return {
    isExpanded: (row: TableRow) => keys.value.length > 0 && keys.value.includes(rowKey(row, columns()) ?? ""),
    toggle,
  };
}
