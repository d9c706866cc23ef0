// Pointer and wheel on the tracks and on the time axis.
import { onScopeDispose, shallowRef, watch, type Ref } from "vue";
import { follow, point_in, wheel_px, type Point } from "../../canvas/pointer";
import { hit_at, row_at, type Hit } from "./hit";
import { ns_at, type SceneRow } from "./scene";
import type { Selection } from "./selection";
import type { Timeline } from "./timeline";

const ZOOM_PER_PX = 0.0022;

export interface Hover extends Point {
  hit: Hit | null;
  row: SceneRow | null;
  /** CSS pixels in the window; x and y are those in the canvas. */
  client_x: number;
  client_y: number;
}

function zoom_factor(event: WheelEvent): number {
  return Math.exp(Math.max(-200, Math.min(200, wheel_px(event).y)) * ZOOM_PER_PX);
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

  function time_at(x: number): number {
    return stage.scene ? ns_at(stage.scene, x * stage.scene.ratio) : 0;
  }

  function hover_at(client: { clientX: number; clientY: number }): void {
    const scene = stage.scene;
    if (!area.value || !scene) return;
    const { x, y } = point_in(client, area.value);
    const hit = hit_at(scene, x * scene.ratio, y * scene.ratio);
    hover.value = { hit, row: row_at(scene, y), client_x: client.clientX, client_y: client.clientY, x, y };
    stage.mark({ hover: hit, cursor: x });
  }

  function leave(): void {
    pointer = null;
    hover.value = null;
    stage.mark({ hover: null, cursor: null });
  }

  function on_hover(event: PointerEvent): void {
    pointer = { x: event.clientX, y: event.clientY };
    if (dragging.value !== null || queued !== 0) return;
    const client = { clientX: event.clientX, clientY: event.clientY };
    queued = requestAnimationFrame(() => {
      queued = 0;
      if (pointer && dragging.value === null) hover_at(client);
    });
  }

  function tracks_between(y0: number, y1: number): string[] {
    const rows = stage.scene?.rows ?? [];
    const touched = rows.filter(
      ({ row, y, top }) => y + row.height > Math.min(y0, y1) && Math.max(y, top) < Math.max(y0, y1),
    );
    const items = touched.flatMap(({ row }) => row.item ?? (row.folded ? row.below : []));
    return [...new Set(items.filter((item) => item.track).map((item) => item.key))];
  }

  function select_area(event: PointerEvent, element: HTMLElement, with_tracks: boolean): void {
    const from = point_in(event, element);
    const begun = time_at(from.x);
    let area_now: { start: number; end: number; tracks: string[] } | null = null;
    follow(
      event,
      element,
      (next) => {
        const { x, y } = point_in(next, element);
        dragging.value = "area";
        const now = time_at(Math.max(0, Math.min(stage.width, x)));
        area_now = {
          start: Math.min(begun, now),
          end: Math.max(begun, now),
          tracks: with_tracks ? tracks_between(from.y, y) : [],
        };
        stage.mark({ area: area_now });
      },
      (dragged, last) => {
        dragging.value = null;
        if (dragged && last.type === "pointerup" && area_now && area_now.end - area_now.start >= 1)
          state.area.value = {
            start: Math.floor(area_now.start),
            end: Math.ceil(area_now.end),
            tracks: area_now.tracks,
          };
        else if (!with_tracks) on_axis_click(from.x, from.y);
      },
    );
  }

  function on_axis_click(x: number, y: number): void {
    const at = time_at(x);
    const main = timeline.main.value;
    const mark = main?.meta.steps.find(
      (one) => at >= one.start_ns + main.offset && at < one.start_ns + one.duration_ns + main.offset,
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
    const per_px = stage.camera.span / Math.max(1, stage.width);
    const first = { x: event.clientX, y: event.clientY };
    follow(
      event,
      element,
      (next) => {
        if (dragging.value === null) leave();
        dragging.value = "pan";
        const by = (first.x - next.clientX) * per_px;
        stage.camera.set(start + by, end + by);
        timeline.scroll_to.value(scroll + first.y - next.clientY);
        timeline.moved();
      },
      (dragged, last) => {
        dragging.value = null;
        if (dragged && last.type === "pointerup") return;
        const at = point_in(event, element);
        const hit = stage.hit(at.x, at.y);
        if (hit) selection.select(hit.strip.source.id.worker, hit.event);
        else selection.clear();
      },
    );
  }

  function on_down(event: PointerEvent): void {
    if (event.button !== 0 || !area.value) return;
    // The tracks take the keys, wherever the focus was.
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    if (event.shiftKey) select_area(event, area.value, true);
    else pan(event, area.value);
  }

  function on_double(): void {
    const hit = hover.value?.hit;
    if (!hit) return;
    selection.select(hit.strip.source.id.worker, hit.event);
    selection.zoom();
  }

  function on_axis_down(event: PointerEvent): void {
    if (event.button === 0 && axis.value) select_area(event, axis.value, false);
  }

  function on_wheel(event: WheelEvent): void {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      const { x } = point_in(event, area.value);
      stage.camera.zoom(time_at(x), zoom_factor(event));
    } else if (sideways !== 0) {
      stage.camera.pan((sideways * stage.camera.span) / Math.max(1, stage.width));
    } else return;
    event.preventDefault();
    timeline.moved();
  }

  /** Under a resting pointer the picture may move: what it points at is then another slice. */
  watch(timeline.frame, () => {
    if (pointer && dragging.value === null && queued === 0 && hover.value && stage.scene) {
      const hit = stage.hit(hover.value.x, hover.value.y);
      if (hit?.event !== hover.value.hit?.event || hit?.x0 !== hover.value.hit?.x0)
        hover_at({ clientX: pointer.x, clientY: pointer.y });
    }
  });
  onScopeDispose(() => cancelAnimationFrame(queued));

  return { hover, dragging, leave, on_hover, on_down, on_double, on_axis_down, on_wheel, time_at };
}
