// Which columns of a table a user wants to see, remembered per table.
import { reactive } from "vue";
import { store } from "../state/preferences";

type Choices = Record<string, boolean>;

function read(key: string): Choices {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(key) ?? "{}");
    return typeof value === "object" && value !== null ? (value as Choices) : {};
  } catch {
    return {};
  }
}

export interface VisibleColumns {
  is_visible: (name: string, by_default: boolean) => boolean;
  choose: (name: string, shown: boolean) => void;
  reset: () => void;
}

export function useVisibleColumns(scope: string): VisibleColumns {
  const key = `visualprof.columns.${scope}`;
  const choices = reactive(read(key));
  return {
    is_visible: (name, by_default) => choices[name] ?? by_default,
    choose(name, shown) {
      choices[name] = shown;
      store(key, JSON.stringify(choices));
    },
    reset() {
      for (const name of Object.keys(choices)) Reflect.deleteProperty(choices, name);
      store(key, "{}");
    },
  };
}
