// The page's state. All of it is in the address, so that a copied link shows the same.
import { computed } from "vue";
import { useParameter } from "../../state/address";
import { MEASURES, type Measure } from "../../api/graph";
import { LEFT_RIGHT, TOP_DOWN, type Direction } from "./layout/direction";

export type ShownMeasure = Measure | "change";

const NO_MEASURE = "off";

/** `byItself`: the measure shown by default. */
export function useGraphState(byItself: () => ShownMeasure) {
  const dir = useParameter("dir", TOP_DOWN);
  const heat = useParameter("heat", "");
  const path = useParameter("path", "");
  const difference = useParameter("difference", "");
  return {
    model: useParameter("model", ""),
    other: useParameter("other", ""),
    open: useParameter("open", ""),
    otherOpen: useParameter("other_open", ""),
    selected: useParameter("sel", ""),
    search: useParameter("search", ""),
    find: useParameter("find", ""),
    direction: computed<Direction>({
      get: () => (dir.value === LEFT_RIGHT ? LEFT_RIGHT : TOP_DOWN),
      set: (value) => (dir.value = value),
    }),
    /** The selected kind of difference; -1 for all. */
    difference: computed({
      get: () => (difference.value === "" ? -1 : Number(difference.value)),
      set: (row: number) => (difference.value = row < 0 ? "" : String(row)),
    }),
    /** The full data flow, not only the neighbors. */
    whole: computed({ get: () => path.value !== "", set: (on: boolean) => (path.value = on ? "1" : "") }),
    /** The shown measure; null if the user switched it off. */
    measure: computed<ShownMeasure | null>({
      get: () =>
        heat.value === NO_MEASURE ? null : (MEASURES.find((measure) => measure === heat.value) ?? byItself()),
      set: (value) => (heat.value = value === null ? NO_MEASURE : value === byItself() ? "" : value),
    }),
  };
}
