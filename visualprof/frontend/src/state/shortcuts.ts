import { useEventListener } from "@vueuse/core";

type Shortcuts = Record<string, (event: KeyboardEvent) => void>;

export function isTyping(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement && /^(checkbox|radio|button|file)$/.test(target.type)) return false;
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Handle single keys. They are ignored while the user types or holds a modifier of the browser. */
export function useShortcuts(shortcuts: Shortcuts): void {
  useEventListener(window, "keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    // The first Escape closes the top layer; preventing it would leave that open.
    if (event.key === "Escape" && document.querySelector(":popover-open, dialog[open]")) return;
    const action = shortcuts[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}
