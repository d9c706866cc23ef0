// What is under the pointer on a canvas, and where a tip about it fits.
import { computed, shallowRef, type ShallowRef, type StyleValue } from "vue";
import { pointIn, type Point } from "./pointer";

const MARGIN_PX = 14;
const TIP_PX = 100;

/** `find`: returns what is at a point, `none` if nothing is. The tip is on the side of the pointer with more space. */
export function useHover<T>(canvas: Readonly<ShallowRef<Element | null>>, find: (at: Point) => T, none: T) {
  const hovered = shallowRef<T>(none);
  const pointer = shallowRef<Point>({ x: 0, y: 0 });
  const targetOf = (event: MouseEvent) => find(pointIn(event, canvas.value));
  const onMove = (event: MouseEvent) => {
    pointer.value = { x: event.clientX, y: event.clientY };
    hovered.value = targetOf(event);
  };
  const leave = () => (hovered.value = none);
  const tipPlace = computed<StyleValue>(() => {
    const [{ x, y }, { innerWidth: width, innerHeight: height }] = [pointer.value, window];
    return {
      ...(x > width / 2 ? { right: `${width - x + MARGIN_PX}px` } : { left: `${x + MARGIN_PX}px` }),
      ...(y > height - TIP_PX ? { bottom: `${height - y + MARGIN_PX}px` } : { top: `${y + MARGIN_PX + 4}px` }),
    };
  });
  return { hovered, targetOf, onMove, leave, tipPlace };
}
