import { useResizeObserver } from "@vueuse/core";
import { ref, type Ref } from "vue";

/**
 * Return the top edge of a page below the shell's header, which may have a message. A page with a canvas fills the rest of the
 * window and never scrolls.
 */
export function usePageTop(page: Readonly<Ref<HTMLElement | null>>): Ref<number> {
  const top = ref(0);
  useResizeObserver(
    () => page.value && document.querySelector<HTMLElement>(".shell .top"),
    () => (top.value = (page.value?.getBoundingClientRect().top ?? 0) + window.scrollY),
  );
  return top;
}
