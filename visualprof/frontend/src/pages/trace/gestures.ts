// Pointer and wheel on the tracks and on the time axis.
import { onScopeDispose, shallowRef, watch, type Ref } from "vue";
import { trackDrag, pointIn, wheelPx, type Point } from "../../canvas/pointer";
import { hitAt, rowAt, type Hit } from "./hit";
import { xToTime, type SceneRow } from "./scene";
import type { Selection } from "./selection";
import type { Timeline } from "./timeline";

const ZOOM_PER_PX = 0.0022;

export interface Hover extends Point {
  hit: Hit | null;
  row: SceneRow | null;
  /** CSS pixels in the window; x and y are relative to the canvas. */
  clientX: number;
  clientY: number;
}

function zoomFactor(event: WheelEvent): number {
  return Math.exp(Math.max(-200, Math.min(200, wheelPx(event).y)) * ZOOM_PER_PX);
}

export function useGestures(
  timeline: Timeline,
  selection: Selection,
  area: Ref<HTMLElement | null>,
  axis: Ref<HTMLElement | null>,
) {
  const { stage, state } = timeline;
  const hover = shallowRef<Hover | null>(null);
  const dragging = shallowRef<"pan" | "area" | null>(null);
  let pointer: Point | null = null;
  let queued = 0;

  function timeAt(x: number): number {
    return stage.scene ? xToTime(stage.scene, x * stage.scene.ratio) : 0;
  }

  function hoverAt(client: { clientX: number; clientY: number }): void {
    const scene = stage.scene;
    if (!area.value || !scene) return;
    const { x, y } = pointIn(client, area.value);
    const hit = hitAt(scene, x * scene.ratio, y * scene.ratio);
    hover.value = { hit, row: rowAt(scene, y), clientX: client.clientX, clientY: client.clientY, x, y };
    stage.setMarks({ hover: hit, cursor: x });
  }

  function leave(): void {
    pointer = null;
    hover.value = null;
    stage.setMarks({ hover: null, cursor: null });
  }

  function onHover(event: PointerEvent): void {
    pointer = { x: event.clientX, y: event.clientY };
    if (dragging.value !== null || queued !== 0) return;
    const client = { clientX: event.clientX, clientY: event.clientY };
    queued = requestAnimationFrame(() => {
      queued = 0;
      if (pointer && dragging.value === null) hoverAt(client);
    });
  }

  function tracksBetween(y0: number, y1: number): string[] {
    const rows = stage.scene?.rows ?? [];
    const touched = rows.filter(
      ({ row, y, top }) => y + row.height > Math.min(y0, y1) && Math.max(y, top) < Math.max(y0, y1),
    );
    const items = touched.flatMap(({ row }) => row.item ?? (row.folded ? row.below : []));
    return [...new Set(items.filter((item) => item.track).map((item) => item.key))];
  }

  function selectArea(event: PointerEvent, element: HTMLElement, withTracks: boolean): void {
    const from = pointIn(event, element);
    const startTime = timeAt(from.x);
    let areaNow: { start: number; end: number; tracks: string[] } | null = null;
    trackDrag(
      event,
      element,
      (next) => {
        const { x, y } = pointIn(next, element);
        dragging.value = "area";
        const now = timeAt(Math.max(0, Math.min(stage.width, x)));
        areaNow = {
          start: Math.min(startTime, now),
          end: Math.max(startTime, now),
          tracks: withTracks ? tracksBetween(from.y, y) : [],
        };
        stage.setMarks({ area: areaNow });
      },
      (dragged, last) => {
        dragging.value = null;
        if (dragged && last.type === "pointerup" && areaNow && areaNow.end - areaNow.start >= 1)
          state.area.value = {
            start: Math.floor(areaNow.start),
            end: Math.ceil(areaNow.end),
            tracks: areaNow.tracks,
          };
        else if (!withTracks) onAxisClick(from.x, from.y);
      },
    );
  }

  function onAxisClick(x: number, y: number): void {
    const at = timeAt(x);
    const main = timeline.main.value;
    const mark = main?.meta.steps.find(
      (candidate) =>
        at >= candidate.start_ns + main.offset && at < candidate.start_ns + candidate.duration_ns + main.offset,
    );
    if (main && mark && y > (axis.value?.clientHeight ?? 0) / 2)
      state.area.value = {
        start: mark.start_ns + main.offset,
        end: mark.start_ns + mark.duration_ns + main.offset,
        tracks: [],
      };
    else state.area.value = null;
  }

  function pan(event: PointerEvent, element: HTMLElement): void {
    const { start, end } = stage.camera;
    const scroll = stage.scroll;
    const perPx = stage.camera.span / Math.max(1, stage.width);
    const first = { x: event.clientX, y: event.clientY };
    trackDrag(
      event,
      element,
      (next) => {
        if (dragging.value === null) leave();
        dragging.value = "pan";
        const delta = (first.x - next.clientX) * perPx;
        stage.camera.set(start + delta, end + delta);
        timeline.scrollTo.value(scroll + first.y - next.clientY);
        timeline.moved();
      },
      (dragged, last) => {
        dragging.value = null;
        if (dragged && last.type === "pointerup") return;
        const at = pointIn(event, element);
        const hit = stage.hit(at.x, at.y);
        if (hit) selection.select(hit.strip.source.id.worker, hit.event);
        else selection.clear();
      },
    );
  }

  function onDown(event: PointerEvent): void {
    if (event.button !== 0 || !area.value) return;
    // Focus the tracks, so that they receive the keys.
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    if (event.shiftKey) selectArea(event, area.value, true);
    else pan(event, area.value);
  }

  function onDouble(): void {
    const hit = hover.value?.hit;
    if (!hit) return;
    selection.select(hit.strip.source.id.worker, hit.event);
    selection.zoom();
  }

  function onAxisDown(event: PointerEvent): void {
    if (event.button === 0 && axis.value) selectArea(event, axis.value, false);
  }

  function onWheel(event: WheelEvent): void {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      const { x } = pointIn(event, area.value);
      stage.camera.zoom(timeAt(x), zoomFactor(event));
    } else if (sideways !== 0) {
      stage.camera.pan((sideways * stage.camera.span) / Math.max(1, stage.width));
    } else return;
    event.preventDefault();
    timeline.moved();
  }

  /** The picture may move under a resting pointer, which then points at another slice. */
  watch(timeline.frame, () => {
    if (pointer && dragging.value === null && queued === 0 && hover.value && stage.scene) {
      const hit = stage.hit(hover.value.x, hover.value.y);
      if (hit?.event !== hover.value.hit?.event || hit?.x0 !== hover.value.hit?.x0)
        hoverAt({ clientX: pointer.x, clientY: pointer.y });
    }
  });
  onScopeDispose(() => cancelAnimationFrame(queued));

  return { hover, dragging, leave, onHover, onDown, onDouble, onAxisDown, onWheel, timeAt };
}
