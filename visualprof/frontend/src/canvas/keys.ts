import { useEventListener } from "@vueuse/core";
import { isTyping } from "../state/shortcuts";

const CONTROLS = "[role=grid], [role=radiogroup], [role=listbox], [role=slider], [role=separator], button, a, summary";

/** Whether a list, table or button uses this key itself. */
function belongsToControl({ key, target }: KeyboardEvent): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return (
    target.closest("[popover], dialog") !== null ||
    ((key.startsWith("Arrow") || key === "Enter") && target.closest(CONTROLS) !== null)
  );
}

export function keyName({ key }: KeyboardEvent): string {
  return key.length === 1 ? key.toLowerCase() : key;
}

/** Handle the keys of a page with a canvas before the shell does. `act` returns whether it used the key. */
export function useCanvasKeys(act: (key: string, event: KeyboardEvent) => boolean): void {
  useEventListener(
    window,
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || belongsToControl(event)) return;
      if (!act(keyName(event), event)) return;
      event.preventDefault();
      event.stopPropagation();
    },
    { capture: true },
  );
}
