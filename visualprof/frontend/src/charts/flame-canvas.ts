// The painter of a canvas with a flame graph: its life, the frame under the pointer, and the selected frame.
import { usePreferredReducedMotion } from "@vueuse/core";
import { onBeforeUnmount, ref, shallowRef, watch, type ShallowRef } from "vue";
import { useHover } from "../canvas/use-hover";
import { Painter } from "./flame-painter";

/** Frames are rows of the tree, -1 for none. */
export function useFlamePainter(canvas: Readonly<ShallowRef<HTMLCanvasElement | null>>) {
  const motion = usePreferredReducedMotion();
  const painter = shallowRef<Painter | null>(null);
  const chosen = ref(-1);
  const hover = useHover(canvas, ({ x, y }) => painter.value?.frameAt(x, y) ?? -1, -1);
  watch(canvas, (element) => {
    painter.value?.stop();
    painter.value = element && new Painter(element, motion.value === "reduce");
  });
  onBeforeUnmount(() => painter.value?.stop());
  watch([painter, hover.hovered, chosen], () => {
    if (!painter.value) return;
    painter.value.hovered = hover.hovered.value;
    painter.value.chosen = chosen.value;
    painter.value.invalidate();
  });
  return { ...hover, painter, chosen };
}
