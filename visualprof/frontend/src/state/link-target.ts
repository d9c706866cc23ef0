// What a link leads to: a place of a page, and an entry of that place. Links name it in the address
// (`mark=operator:aten::mm`); buttons of the same page call `showTarget`. The page scrolls to it and marks it.
import { onScopeDispose, shallowRef, watch } from "vue";
import { patchQuery, queryValue } from "./address";

const RETRY_MS = 100;
/** A place that does not exist after this number of tries is not on the page. */
const MAX_TRIES = 80;
/** An entry that is not listed after this number of tries is filtered out; then its place is marked. */
const MAX_ENTRY_TRIES = 30;
/** Content that loads above the target moves it; it is kept on screen for this number of checks. */
const CHECKS = 15;
const HIGHLIGHT_MS = 4000;

export interface LinkTarget {
  /** The `data-place` of a panel. */
  place: string;
  /** The `data-key` of an entry in it, null for the panel itself. */
  key: string | null;
}

/** The target that is being shown: tables scroll to its row. */
export const linkTarget = shallowRef<LinkTarget | null>(null);

export function parseTarget(text: string): LinkTarget {
  const at = text.indexOf(":");
  return at < 0 ? { place: text, key: null } : { place: text.slice(0, at), key: text.slice(at + 1) };
}

export function formatTarget(place: string, key?: string | null): string {
  return key ? `${place}:${key}` : place;
}

function findElement({ place, key }: LinkTarget, tries: number): Element | null {
  const panel = document.querySelector(`[data-place="${CSS.escape(place)}"]`);
  if (!panel || key === null) return panel;
  const entry = panel.querySelector(`[data-key="${CSS.escape(key)}"]`);
  return entry ?? (tries >= MAX_ENTRY_TRIES ? panel : null);
}

function scrollTo(element: Element, behavior: ScrollBehavior): void {
  const fits = element.getBoundingClientRect().height < window.innerHeight * 0.8;
  element.scrollIntoView({ block: fits ? "center" : "start", behavior });
}

function isOnScreen(element: Element): boolean {
  const { top, bottom, height } = element.getBoundingClientRect();
  return top >= 0 && (bottom <= window.innerHeight || height > window.innerHeight * 0.8);
}

let stop: () => void = () => undefined;

/** Scroll to a target of this page and mark it. */
export function showTarget(place: string, key: string | null = null): void {
  stop();
  const target = { place, key };
  linkTarget.value = target;
  let [timer, tries, checks] = [0, 0, 0];
  let element: Element | null = null;

  function end(): void {
    clearTimeout(timer);
    removeEventListener("wheel", stopChecks);
    removeEventListener("pointerdown", stopChecks);
    element?.classList.remove("marked");
    if (linkTarget.value === target) linkTarget.value = null;
  }
  function stopChecks(): void {
    checks = CHECKS;
  }
  function check(): void {
    if (element && !element.isConnected) element = null;
    const found = findElement(target, tries);
    if (found && found !== element) {
      element?.classList.remove("marked");
      element = found;
      element.classList.add("marked");
      const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (checks < CHECKS) scrollTo(element, reduced ? "auto" : "smooth");
    } else if (found && checks > 5 && checks < CHECKS && !isOnScreen(found)) scrollTo(found, "auto");
    if (found) checks += 1;
    tries += 1;
    if (found ? checks * RETRY_MS < HIGHLIGHT_MS : tries < MAX_TRIES) timer = window.setTimeout(check, RETRY_MS);
    else end();
  }
  addEventListener("wheel", stopChecks, { passive: true });
  addEventListener("pointerdown", stopChecks);
  stop = end;
  timer = window.setTimeout(check, 0);
}

/** Show the targets of links. The parameters are removed, so that Back and shared addresses do not scroll again. */
export function useLinkTargets(): void {
  watch(
    () => queryValue("mark") ?? queryValue("chart") ?? queryValue("table"),
    (text) => {
      if (text === null) return;
      const { place, key } = parseTarget(text);
      showTarget(place, key);
      patchQuery({ mark: null, chart: null, table: null });
    },
    { immediate: true },
  );
  onScopeDispose(() => stop());
}
