// A canvas that is as wide as its element and is drawn again when its width or what it shows changes.
import { useElementSize } from "@vueuse/core";
import { watchPostEffect, type Ref } from "vue";

/** Draw on a canvas with `paint`, in CSS pixels; return its width. */
export function useCanvas(
  canvas: Readonly<Ref<HTMLCanvasElement | null>>,
  height: () => number,
  paint: (context: CanvasRenderingContext2D, width: number) => void,
) {
  const { width } = useElementSize(canvas);
  watchPostEffect(() => {
    const context = canvas.value?.getContext("2d");
    if (!context || !canvas.value || width.value === 0) return;
    const ratio = window.devicePixelRatio;
    canvas.value.width = Math.round(width.value * ratio);
    canvas.value.height = Math.round(height() * ratio);
    context.scale(ratio, ratio);
    paint(context, width.value);
  });
  return width;
}
