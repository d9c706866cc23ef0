import { useEventListener } from "@vueuse/core";
import { isTyping } from "../state/shortcuts";

const CONTROLS = "[role=table], [role=radiogroup], [role=listbox], [role=slider], [role=separator], button, a, summary";

/** Lists, tables and buttons use the arrows and Enter themselves. */
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

/** Keys of a page with a canvas, ahead of the shell's, which has some of them for itself. `act` says whether it had a use for one. */
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
