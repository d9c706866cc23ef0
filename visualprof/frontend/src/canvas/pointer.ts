// Pointers over a canvas: their position, the distance a wheel turned, and a drag from press to release.

/** A shorter drag is a click with an unsteady hand. */
const DRAG_PX = 4;
const WHEEL_LINE_PX = 40;

export interface Point {
  x: number;
  y: number;
}

/** CSS pixels from the element's upper left corner. */
export function pointIn(event: { clientX: number; clientY: number }, element: Element | null): Point {
  const box = element?.getBoundingClientRect();
  return { x: event.clientX - (box?.left ?? 0), y: event.clientY - (box?.top ?? 0) };
}

export function wheelPx(event: WheelEvent): Point {
  const unit = event.deltaMode === 1 ? WHEEL_LINE_PX : 1;
  return { x: event.deltaX * unit, y: event.deltaY * unit };
}

/** Follow a pressed pointer until its release. `done` receives whether the pointer moved. */
export function trackDrag(
  event: PointerEvent,
  element: HTMLElement,
  move: (next: PointerEvent) => void,
  done?: (dragged: boolean, last: PointerEvent) => void,
  slackPx = DRAG_PX,
): void {
  const control = new AbortController();
  const { signal } = control;
  let dragged = false;
  element.setPointerCapture(event.pointerId);
  element.addEventListener(
    "pointermove",
    (next) => {
      dragged ||= Math.max(Math.abs(next.clientX - event.clientX), Math.abs(next.clientY - event.clientY)) > slackPx;
      if (dragged) move(next);
    },
    { signal },
  );
  const end = (last: PointerEvent) => {
    control.abort();
    done?.(dragged, last);
  };
  element.addEventListener("pointerup", end, { signal });
  element.addEventListener("pointercancel", end, { signal });
}
