import { useResizeObserver } from "@vueuse/core";
import { ref, type Ref } from "vue";

/** Where a page begins, below the shell's head, which may wrap: one with a canvas takes the rest of the window and never scrolls itself. */
export function usePageTop(page: Readonly<Ref<HTMLElement | null>>): Ref<number> {
  const top = ref(0);
  useResizeObserver(
    () => page.value && document.querySelector<HTMLElement>(".shell > .top"),
    () => (top.value = (page.value?.getBoundingClientRect().top ?? 0) + window.scrollY),
  );
  return top;
}
