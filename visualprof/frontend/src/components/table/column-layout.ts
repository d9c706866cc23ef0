// The columns of a table as the user has arranged them: visibility, width and order, remembered per table.
import { computed, type ComputedRef } from "vue";
import { useStored } from "../../state/preferences";
import type { Column } from "./columns";

const MIN_WIDTH_PX = 40;

export interface ColumnLayout {
  /** All columns in the user's order. */
  all: ComputedRef<Column[]>;
  /** The visible columns, with the user's widths. */
  shown: ComputedRef<Column[]>;
  isShown: (name: string) => boolean;
  show: (name: string, shown: boolean) => void;
  /** Set the widths of columns in pixels. */
  resize: (widths: Readonly<Record<string, number>>) => void;
  /** The width that the content of a column needs, in pixels. */
  contentWidth: (name: string) => number;
  /** Move a column to the position of another one. */
  move: (name: string, target: string) => void;
  /** Move a visible column by a number of visible columns. Return its position from 0, or null if it cannot move. */
  moveBy: (name: string, by: number) => number | null;
  /** Forget everything that the user has arranged. */
  reset: () => void;
  isChanged: ComputedRef<boolean>;
}

/** Return names in a stored order. A name that is not stored follows its predecessor. */
export function arrangeNames(names: readonly string[], order: readonly string[]): string[] {
  const arranged = order.filter((name) => names.includes(name));
  names.forEach((name, i) => {
    if (!arranged.includes(name)) arranged.splice(i === 0 ? 0 : arranged.indexOf(names[i - 1] ?? "") + 1, 0, name);
  });
  return arranged;
}

/** `isDefault` returns whether a column is visible if the user has not decided. */
export function useColumnLayout(
  scope: string,
  columns: () => readonly Column[],
  isDefault: (name: string) => boolean = () => true,
): ColumnLayout {
  const visibility = useStored<Record<string, boolean>>(`columns.${scope}`, {});
  const widths = useStored<Record<string, number>>(`widths.${scope}`, {});
  const order = useStored<string[]>(`order.${scope}`, []);

  const isShown = (name: string) => visibility.value[name] ?? isDefault(name);
  const all = computed(() => {
    const byName = new Map(columns().map((column) => [column.name, column]));
    return arrangeNames([...byName.keys()], order.value).flatMap((name) => byName.get(name) ?? []);
  });
  const shown = computed(() => all.value.filter(({ name }) => isShown(name)).map(withWidth));

  function withWidth(column: Column): Column {
    const widthPx = widths.value[column.name];
    return widthPx === undefined ? column : { ...column, widthPx, maxWidth: `${widthPx}px`, fixed: true };
  }

  function move(name: string, target: string): void {
    const names = all.value.map((column) => column.name);
    const to = names.indexOf(target);
    if (to < 0 || name === target) return;
    const others = names.filter((other) => other !== name);
    others.splice(to, 0, name);
    order.value = others;
  }

  function moveBy(name: string, by: number): number | null {
    const position = shown.value.findIndex((column) => column.name === name) + by;
    const target = shown.value[position];
    if (!target) return null;
    move(name, target.name);
    return position;
  }

  return {
    all,
    shown,
    isShown,
    show: (name, visible) => (visibility.value = { ...visibility.value, [name]: visible }),
    resize: (changed) => {
      const rounded = Object.entries(changed).map(([name, px]) => [name, Math.max(MIN_WIDTH_PX, Math.round(px))]);
      widths.value = { ...widths.value, ...(Object.fromEntries(rounded) as Record<string, number>) };
    },
    contentWidth: (name) => {
      const column = columns().find((candidate) => candidate.name === name);
      return parseFloat(column?.maxWidth ?? "") || (column?.widthPx ?? MIN_WIDTH_PX);
    },
    move,
    moveBy,
    reset: () => {
      visibility.value = {};
      widths.value = {};
      order.value = [];
    },
    isChanged: computed(() =>
      [visibility.value, widths.value, order.value].some((stored) => Object.keys(stored).length > 0),
    ),
  };
}
