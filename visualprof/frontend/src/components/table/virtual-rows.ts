// Only visible rows are in the document, however many there are. The first visible row is kept in the browser's history.
import { useVirtualizer } from "@tanstack/vue-virtual";
import { useDebounceFn } from "@vueuse/core";
import { computed, watch, type ComponentPublicInstance, type Ref } from "vue";
import { readEntry, writeEntry } from "../../state/history-entry";

const ROW_PX = 27;
const PAUSE_MS = 150;

interface Options {
  scroller: Readonly<Ref<HTMLElement | null>>;
  count: () => number;
  /** Name of the scroll position in the browser's history. */
  name: string;
  /** The rows that are on screen have changed. */
  onVisible: (from: number, to: number) => void;
}

export function useVirtualRows({ scroller, count, name, onVisible }: Options) {
  const remembered = readEntry(name);
  const virtual = useVirtualizer(
    computed(() => ({
      count: count(),
      getScrollElement: () => scroller.value,
      estimateSize: () => ROW_PX,
      overscan: 10,
      initialOffset: typeof remembered === "number" ? remembered * ROW_PX : 0,
    })),
  );
  const items = computed(() => virtual.value.getVirtualItems());
  const height = computed(() => virtual.value.getTotalSize());

  watch(
    items,
    (shown) => {
      const [start, end] = [shown[0]?.index, shown[shown.length - 1]?.index];
      if (start !== undefined && end !== undefined) onVisible(start, end);
    },
    { immediate: true },
  );

  const remember = useDebounceFn(() => {
    // After the pause, the page may have been left.
    if (!scroller.value) return;
    const top = scroller.value.scrollTop;
    writeEntry(name, items.value.find((item) => item.end > top)?.index ?? 0);
  }, PAUSE_MS);

  function measure(element: Element | ComponentPublicInstance | null): void {
    if (element instanceof Element) virtual.value.measureElement(element);
  }

  /** Forget the heights of rows and scroll to the first one. */
  function reset(): void {
    virtual.value.measure();
    scroller.value?.scrollTo({ top: 0 });
  }

  return {
    items,
    height,
    measure,
    reset,
    remember,
    scrollTo: (row: number, align: "auto" | "center" = "auto") => virtual.value.scrollToIndex(row, { align }),
  };
}
