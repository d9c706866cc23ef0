// The page's keys. Some have another meaning in the shell.
import { useCanvasKeys } from "../../canvas/keys";
import { boxOf } from "./canvas/scene";
import { LEFT_RIGHT, TOP_DOWN } from "./layout/direction";
import type { Workspace } from "./workspace";

const ZOOM_PER_KEY = 1.25;
const ARROWS: Record<string, readonly [dx: number, dy: number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

/** Return the neighbor along an edge, or next to the box, that is nearest to the direction of the arrow key. */
function nearestInDirection(workspace: Workspace, dx: number, dy: number): number {
  const scene = workspace.main.scene.value;
  if (!scene) return -1;
  const { picture } = scene;
  const from = workspace.marks.value.selected;
  if (from < 0) return picture.item[0] ?? -1;
  const origin = boxOf(scene, from);
  const linked = new Set<number>();
  for (let e = 0; e < picture.kind.length; e += 1) {
    if (picture.from[e] === from) linked.add(picture.to[e] ?? -1);
    if (picture.to[e] === from) linked.add(picture.from[e] ?? -1);
  }
  let best = -1;
  let leastDistance = Infinity;
  for (let i = 0; i < picture.item.length; i += 1) {
    if (i === from || (picture.around[i] !== picture.around[from] && !linked.has(i))) continue;
    const box = boxOf(scene, i);
    const [x, y] = [box.x + box.w / 2 - origin.x - origin.w / 2, box.y + box.h / 2 - origin.y - origin.h / 2];
    const along = x * dx + y * dy;
    if (along <= 1) continue;
    // Connected items are preferred; others have a higher cost.
    const cost = along + 2 * Math.abs(x * dy + y * dx) + (linked.has(i) ? 0 : 4000);
    if (cost < leastDistance) [leastDistance, best] = [cost, i];
  }
  return best < 0 ? -1 : (picture.item[best] ?? -1);
}

export function useGraphKeys(workspace: Workspace, focusSearch: () => void): void {
  const { state, main, sides } = workspace;

  function clear(): void {
    if (state.selected.value) workspace.select(-1);
    else {
      state.search.value = "";
      state.find.value = "";
    }
  }

  function onGroup(open: boolean): void {
    const item = workspace.selected.value;
    const graph = main.graph.value;
    if (!graph || item < 0) return;
    const group =
      graph.isGroup(item) && (open || main.open.value.has(item)) ? item : open ? -1 : (graph.parent[item] ?? -1);
    if (group < 0 || group === graph.root || main.open.value.has(group) === open) return;
    workspace.toggle(group);
    if (!open) workspace.select(group);
  }

  const actions: Record<string, (event: KeyboardEvent) => void> = {
    "+": () => sides.zoom(ZOOM_PER_KEY),
    "=": () => sides.zoom(ZOOM_PER_KEY),
    "-": () => sides.zoom(1 / ZOOM_PER_KEY),
    "0": () => sides.fit(true),
    f: () => (workspace.selected.value >= 0 ? workspace.goTo(workspace.selected.value) : sides.fit()),
    e: (event) => (event.shiftKey ? workspace.everywhere((session) => session.openAll()) : onGroup(true)),
    c: (event) => (event.shiftKey ? workspace.everywhere((session) => session.closeAll()) : onGroup(false)),
    l: () => (state.direction.value = state.direction.value === TOP_DOWN ? LEFT_RIGHT : TOP_DOWN),
    h: () =>
      (state.measure.value = state.measure.value === null ? (workspace.change.value ? "change" : "time_ns") : null),
    p: () => (state.whole.value = !state.whole.value),
    "/": focusSearch,
    Enter: (event) => {
      const item = workspace.selected.value;
      if (state.search.value && !event.shiftKey && !main.graph.value?.isGroup(item)) workspace.moveHit(1);
      else if (event.shiftKey) workspace.moveHit(-1);
      else if (item >= 0) workspace.toggle(item);
    },
    Escape: clear,
  };

  useCanvasKeys((key, event) => {
    const arrow = ARROWS[key];
    const next = arrow ? nearestInDirection(workspace, ...arrow) : -1;
    if (next >= 0) workspace.goTo(next);
    else actions[key]?.(event);
    return arrow !== undefined || actions[key] !== undefined;
  });
}
