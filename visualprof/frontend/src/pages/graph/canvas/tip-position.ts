// The position of a tooltip: inside the area, next to its box, and covering as little text as possible.
import type { Point } from "../../../canvas/pointer";
import { TITLE } from "../layout/sizes";
import type { Box, Camera } from "./camera";
import { boxOf, type Scene } from "./scene";

const GAP_PX = 10;
const MARGIN = 6;
/** Beyond this distance, a tooltip is no longer next to its box; it covers other boxes instead. */
const REACH_PX = 260;
/** Number of nearest boxes that are kept free, and number of boxes next to which positions are tried. */
const MAX_CLEAR = 200;
const MAX_TRIED = 24;

interface Size {
  width: number;
  height: number;
}

function overlap(a: Box, b: Box): number {
  return (
    Math.max(0, Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x)) *
    Math.max(0, Math.min(a.y + a.h, b.y + b.h) - Math.max(a.y, b.y))
  );
}

function gap(a: Box, b: Box): number {
  return Math.hypot(Math.max(0, a.x - b.x - b.w, b.x - a.x - a.w), Math.max(0, a.y - b.y - b.h, b.y - a.y - a.h));
}

/**
 * Return the boxes with text, in pixels of the area: a box, or the title of an open group. The visible part of the
 * hovered box comes first, then the nearest ones.
 */
export function textBoxesNear(scene: Scene, camera: Camera, boxIndex: number): [Box, ...Box[]] {
  const screenBox = (i: number): Box => {
    const box = boxOf(scene, i);
    const { x, y } = camera.toScreen(box.x, box.y);
    return { x, y, w: box.w * camera.scale, h: (scene.picture.open[i] ? TITLE : box.h) * camera.scale };
  };
  const boxOnScreen = screenBox(boxIndex);
  const [x, y] = [Math.max(0, boxOnScreen.x), Math.max(0, Math.min(boxOnScreen.y, camera.height - MARGIN))];
  const stubBox = {
    x,
    y,
    w: Math.max(1, Math.min(boxOnScreen.x + boxOnScreen.w, camera.width) - x),
    h: Math.max(1, Math.min(boxOnScreen.y + boxOnScreen.h, camera.height) - y),
  };
  const others: { box: Box; way: number }[] = [];
  for (let i = 0; i < scene.picture.item.length; i += 1) {
    const box = screenBox(i);
    const distance = i === boxIndex ? Infinity : gap(box, stubBox);
    if (distance < 2 * REACH_PX) others.push({ box, way: distance });
  }
  return [
    stubBox,
    ...others
      .sort((a, b) => a.way - b.way)
      .slice(0, MAX_CLEAR)
      .map(({ box }) => box),
  ];
}

/**
 * Return the upper left corner of a tooltip that covers as little as possible and is as near to its box as possible,
 * preferably on the right.
 */
export function tipPosition(size: Size, [ownBox, ...others]: readonly [Box, ...Box[]], area: Size): Point {
  const clamp = (value: number, length: number, max: number) =>
    Math.max(MARGIN, Math.min(value, max - length - MARGIN));
  const boxes = [ownBox, ...others];
  const tried = boxes.slice(0, MAX_TRIED);
  const xs = [
    ownBox.x,
    ownBox.x + ownBox.w - size.width,
    ...tried.flatMap((obstacle) => [obstacle.x + obstacle.w + GAP_PX, obstacle.x - GAP_PX - size.width]),
  ];
  const ys = [
    ownBox.y,
    ownBox.y + ownBox.h - size.height,
    ...tried.flatMap((obstacle) => [obstacle.y + obstacle.h + GAP_PX, obstacle.y - GAP_PX - size.height]),
  ];
  let best = { x: MARGIN, y: MARGIN };
  let leastCost = [Infinity, Infinity];
  for (const wantedX of new Set(xs)) {
    for (const wantedY of new Set(ys)) {
      const at = {
        x: clamp(wantedX, size.width, area.width),
        y: clamp(wantedY, size.height, area.height),
        w: size.width,
        h: size.height,
      };
      const distance = gap(at, ownBox);
      if (distance > REACH_PX) continue;
      const cost = [
        boxes.reduce((sum, obstacle) => sum + overlap(at, obstacle), 0),
        distance + Math.abs(at.y - ownBox.y) / 20 + (at.x < ownBox.x ? 1 : 0),
      ];
      if ((cost[0] ?? 0) < (leastCost[0] ?? 0) || (cost[0] === leastCost[0] && (cost[1] ?? 0) < (leastCost[1] ?? 0)))
        [leastCost, best] = [cost, { x: at.x, y: at.y }];
    }
  }
  return best;
}
