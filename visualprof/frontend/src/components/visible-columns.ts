// The columns that a user has chosen to see, remembered per table.
import { useStored } from "../state/preferences";

export function useVisibleColumns(scope: string) {
  const choices = useStored<Record<string, boolean>>(`columns.${scope}`, {});
  return {
    isVisible: (name: string, byDefault: boolean) => choices.value[name] ?? byDefault,
    choose: (name: string, visible: boolean) => (choices.value = { ...choices.value, [name]: visible }),
    reset: () => (choices.value = {}),
  };
}
