// Pointer and wheel on a canvas: drag pans, wheel zooms, click selects, double click opens and folds.
import { onScopeDispose, shallowRef } from "vue";
import { trackDrag, pointIn, wheelPx, type Point } from "../../canvas/pointer";
import { hitAt, type Hit } from "./canvas/hit";
import type { Stage } from "./stage";

const ZOOM_PER_PX = 0.0016;

interface GestureHandlers {
  select: (item: number) => void;
  toggle: (item: number) => void;
  hover: (item: number) => void;
  /** The user moved the picture: by pixels, or by a factor around a point. */
  panned: (dx: number, dy: number) => void;
  zoomed: (factor: number, px: number, py: number) => void;
}

export function useGestures(stage: Stage, acts: GestureHandlers) {
  const cursor = shallowRef("grab");
  let queued = 0;
  let last: Point | null = null;

  const pointOf = (event: MouseEvent) => pointIn(event, event.currentTarget as HTMLElement);

  function hit(at: Point): Hit | null {
    if (!stage.scene) return null;
    const { x, y } = stage.camera.toPicture(at.x, at.y);
    return hitAt(stage.scene, x, y, 3 / stage.camera.scale);
  }

  function itemOf(target: Hit | null): number {
    return target && stage.scene ? (stage.scene.picture.item[target.box] ?? -1) : -1;
  }

  function onMove(event: PointerEvent): void {
    last = pointOf(event);
    if (event.buttons !== 0) return;
    queued ||= requestAnimationFrame(() => {
      queued = 0;
      if (!last) return;
      const target = hit(last);
      cursor.value = target ? "pointer" : "grab";
      acts.hover(itemOf(target));
    });
  }

  function onLeave(): void {
    last = null;
    acts.hover(-1);
  }

  function onDown(event: PointerEvent): void {
    if (event.button !== 0 && event.button !== 1) return;
    const element = event.currentTarget as HTMLElement;
    element.focus({ preventScroll: true });
    element.setPointerCapture(event.pointerId);
    const pressed = pointOf(event);
    let at = event;
    trackDrag(
      event,
      element,
      (next) => {
        cursor.value = "grabbing";
        acts.panned(next.clientX - at.clientX, next.clientY - at.clientY);
        at = next;
      },
      (dragged, end) => {
        cursor.value = "grab";
        if (dragged || end.type !== "pointerup") return;
        const target = hit(pressed);
        if (target?.button) acts.toggle(itemOf(target));
        else acts.select(itemOf(target));
      },
    );
  }

  function onDouble(event: MouseEvent): void {
    const target = hit(pointOf(event));
    if (target && !target.button) acts.toggle(itemOf(target));
  }

  function onWheel(event: WheelEvent): void {
    event.preventDefault();
    const { x: dx, y: dy } = wheelPx(event);
    if (event.shiftKey) acts.panned(-(dx || dy), 0);
    // Two fingers on a trackpad pan. A wheel, which has no horizontal part, and a pinch zoom.
    else if (!event.ctrlKey && !event.metaKey && dx !== 0) acts.panned(-dx, -dy);
    else {
      const { x, y } = pointOf(event);
      acts.zoomed(Math.exp(-Math.max(-300, Math.min(300, dy)) * ZOOM_PER_PX * (event.ctrlKey ? 4 : 1)), x, y);
    }
  }

  onScopeDispose(() => cancelAnimationFrame(queued));
  return { cursor, onMove, onLeave, onDown, onDouble, onWheel };
}
