// `v-tip="text"`: one tooltip element for the whole page, in the top layer, so that no card or table clips it.
import type { Directive } from "vue";

const DELAY_MS = 250;
const MARGIN = 8;

const texts = new WeakMap<HTMLElement, string>();
let bubble: HTMLElement | null = null;
let timer = 0;

function tooltipElement(): HTMLElement {
  if (!bubble) {
    bubble = document.createElement("div");
    bubble.className = "tip";
    bubble.id = "tip";
    bubble.setAttribute("role", "tooltip");
    bubble.setAttribute("popover", "manual");
    document.body.append(bubble);
  }
  return bubble;
}

function show(owner: HTMLElement): void {
  const text = texts.get(owner);
  if (!text || !owner.isConnected) return;
  const tip = tooltipElement();
  tip.textContent = text;
  tip.showPopover();
  const anchor = owner.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const left = anchor.left + anchor.width / 2 - size.width / 2;
  const below = anchor.bottom + MARGIN / 2;
  const top = below + size.height > window.innerHeight ? anchor.top - size.height - MARGIN / 2 : below;
  tip.style.left = `${Math.max(MARGIN, Math.min(left, window.innerWidth - size.width - MARGIN))}px`;
  tip.style.top = `${Math.max(MARGIN, top)}px`;
  owner.setAttribute("aria-describedby", "tip");
}

function hide(): void {
  clearTimeout(timer);
  bubble?.hidePopover();
}

function schedule(event: Event): void {
  const owner = event.currentTarget as HTMLElement;
  if (event.type === "focus" && !owner.matches(":focus-visible")) return; // a click, which hides the tooltip
  clearTimeout(timer);
  timer = window.setTimeout(() => show(owner), event.type === "focus" ? 0 : DELAY_MS);
}

function onLeave(event: Event): void {
  (event.currentTarget as HTMLElement).removeAttribute("aria-describedby");
  hide();
}

export const vTip: Directive<HTMLElement, string | null | undefined> = {
  mounted(element, { value }) {
    texts.set(element, value ?? "");
    element.addEventListener("pointerenter", schedule);
    element.addEventListener("focus", schedule);
    element.addEventListener("pointerleave", onLeave);
    element.addEventListener("blur", onLeave);
    element.addEventListener("pointerdown", hide);
  },
  updated(element, { value }) {
    if (texts.get(element) === (value ?? "")) return;
    texts.set(element, value ?? "");
    if (!element.hasAttribute("aria-describedby") || !bubble?.matches(":popover-open")) return;
    if (value) show(element);
    else hide();
  },
  beforeUnmount: hide,
};

window.addEventListener("scroll", hide, { capture: true, passive: true });
