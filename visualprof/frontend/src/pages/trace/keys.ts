// The page's keys. A held key acts in every frame; keys are ignored while the user types.
import { useEventListener } from "@vueuse/core";
import { onScopeDispose } from "vue";
import { keyName, useCanvasKeys } from "../../canvas/keys";
import type { Finder } from "./finder";
import type { Selection } from "./selection";
import type { Timeline } from "./timeline";

/** Per second of holding: share of the window, and zoom factor. */
const PAN_PER_S = 1.3;
const ZOOM_PER_S = 9;
const SCROLL_PX_PER_S = 900;
/** Minimum duration of a key press. */
const TAP_MS = 70;

const HELD_KEYS: Record<string, readonly [pan: number, zoom: number, scroll: number]> = {
  a: [-1, 0, 0],
  d: [1, 0, 0],
  w: [0, -1, 0],
  s: [0, 1, 0],
  ArrowLeft: [-1, 0, 0],
  ArrowRight: [1, 0, 0],
  ArrowUp: [0, 0, -1],
  ArrowDown: [0, 0, 1],
};

interface KeyTargets {
  timeline: Timeline;
  selection: Selection;
  finder: Finder;
  /** Time under the pointer, or null. */
  pointed: () => number | null;
  focusSearch: () => void;
}

export function useKeys({ timeline, selection, finder, pointed: pointedTime, focusSearch }: KeyTargets): void {
  const { stage, state } = timeline;
  const pressedKeys = new Map<string, number>();
  let request = 0;
  let last = 0;

  function step(now: number): void {
    request = 0;
    const passed = Math.min(50, now - last) / 1000;
    last = now;
    for (const key of pressedKeys.keys()) move(key, passed);
    if (pressedKeys.size > 0) request = requestAnimationFrame(step);
  }

  function move(key: string, seconds: number): void {
    const [pan, zoom, scroll] = HELD_KEYS[key] ?? [0, 0, 0];
    if (pan) stage.camera.pan(pan * PAN_PER_S * seconds * stage.camera.span);
    if (zoom)
      stage.camera.zoom(pointedTime() ?? (stage.camera.start + stage.camera.end) / 2, ZOOM_PER_S ** (zoom * seconds));
    if (scroll) timeline.scrollTo.value(stage.scroll + scroll * SCROLL_PX_PER_S * seconds);
    timeline.moved();
  }

  function fitSelection(): void {
    const selectedSpot = stage.marks.selected;
    if (selectedSpot) timeline.fit(timeline.rangeOf(selectedSpot.source, selectedSpot.place), 0.15);
    else if (state.area.value) timeline.fit(state.area.value, 0.05);
  }

  /** Select the time range of the selected slice, or of the window, over all tracks. */
  function selectArea(): void {
    const selectedSpot = stage.marks.selected;
    const { start, end } = selectedSpot ? timeline.rangeOf(selectedSpot.source, selectedSpot.place) : stage.camera;
    state.area.value = { start: Math.floor(start), end: Math.ceil(end), tracks: [] };
  }

  function addMarker(): void {
    const selectedSpot = stage.marks.selected;
    const at = pointedTime() ?? (selectedSpot && timeline.rangeOf(selectedSpot.source, selectedSpot.place).start);
    if (at !== null) state.markers.value = [...new Set([...state.markers.value, Math.round(at)])];
  }

  function clear(): void {
    if (state.area.value) state.area.value = null;
    else if (state.selected.value) selection.clear();
    else if (state.search.value) state.search.value = "";
  }

  const once: Record<string, (event: KeyboardEvent) => void> = {
    f: fitSelection,
    "0": timeline.reset,
    m: addMarker,
    x: selectArea,
    "/": focusSearch,
    "[": () => selection.follow("from"),
    "]": () => selection.follow("to"),
    Enter: (event) => finder.move(event.shiftKey ? -1 : 1),
    Escape: clear,
  };

  useCanvasKeys((key, event) => {
    if (HELD_KEYS[key] && !pressedKeys.has(key)) {
      pressedKeys.set(key, performance.now());
      move(key, TAP_MS / 1000);
      last = performance.now();
      request ||= requestAnimationFrame(step);
    } else once[key]?.(event);
    return HELD_KEYS[key] !== undefined || once[key] !== undefined;
  });
  useEventListener(window, "keyup", (event) => pressedKeys.delete(keyName(event)), { capture: true });
  useEventListener(window, "blur", () => pressedKeys.clear());
  onScopeDispose(() => cancelAnimationFrame(request));
}
