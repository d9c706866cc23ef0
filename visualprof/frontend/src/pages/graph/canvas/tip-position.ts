// Where a tip stands: inside the picture's area and beside its box, over nothing that says something.
import type { Point } from "../../../canvas/pointer";
import { TITLE } from "../layout/sizes";
import type { Box, Camera } from "./camera";
import { boxOf, type Scene } from "./scene";

const GAP = 10;
const MARGIN = 6;
/** Further away it is no longer beside its box; then it rather covers something. */
const REACH = 260;
/** So many of the nearest boxes are kept clear, and places beside so many are tried. */
const MOST_CLEAR = 200;
const MOST_TRIED = 24;

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

/** What says something, in pixels of the area: a box, of an open group its title. The pointed one comes first, as much of it as is in sight, then the nearest. */
export function wordsNear(scene: Scene, camera: Camera, place: number): [Box, ...Box[]] {
  const seen = (i: number): Box => {
    const box = boxOf(scene, i);
    const { x, y } = camera.toScreen(box.x, box.y);
    return { x, y, w: box.w * camera.scale, h: (scene.picture.open[i] ? TITLE : box.h) * camera.scale };
  };
  const whole = seen(place);
  const [x, y] = [Math.max(0, whole.x), Math.max(0, Math.min(whole.y, camera.height - MARGIN))];
  const own = {
    x,
    y,
    w: Math.max(1, Math.min(whole.x + whole.w, camera.width) - x),
    h: Math.max(1, Math.min(whole.y + whole.h, camera.height) - y),
  };
  const others: { box: Box; way: number }[] = [];
  for (let i = 0; i < scene.picture.item.length; i += 1) {
    const box = seen(i);
    const way = i === place ? Infinity : gap(box, own);
    if (way < 2 * REACH) others.push({ box, way });
  }
  return [
    own,
    ...others
      .sort((a, b) => a.way - b.way)
      .slice(0, MOST_CLEAR)
      .map(({ box }) => box),
  ];
}

/** Upper left corner of a tip: it covers as little as can be, and stands as near to its box as can be, best at its right. */
export function tipPlace(size: Size, [own, ...others]: readonly [Box, ...Box[]], area: Size): Point {
  const within = (value: number, length: number, most: number) =>
    Math.max(MARGIN, Math.min(value, most - length - MARGIN));
  const all = [own, ...others];
  const tried = all.slice(0, MOST_TRIED);
  const xs = [
    own.x,
    own.x + own.w - size.width,
    ...tried.flatMap((one) => [one.x + one.w + GAP, one.x - GAP - size.width]),
  ];
  const ys = [
    own.y,
    own.y + own.h - size.height,
    ...tried.flatMap((one) => [one.y + one.h + GAP, one.y - GAP - size.height]),
  ];
  let best = { x: MARGIN, y: MARGIN };
  let least = [Infinity, Infinity];
  for (const wantedX of new Set(xs)) {
    for (const wantedY of new Set(ys)) {
      const at = {
        x: within(wantedX, size.width, area.width),
        y: within(wantedY, size.height, area.height),
        w: size.width,
        h: size.height,
      };
      const way = gap(at, own);
      if (way > REACH) continue;
      const cost = [
        all.reduce((sum, one) => sum + overlap(at, one), 0),
        way + Math.abs(at.y - own.y) / 20 + (at.x < own.x ? 1 : 0),
      ];
      if ((cost[0] ?? 0) < (least[0] ?? 0) || (cost[0] === least[0] && (cost[1] ?? 0) < (least[1] ?? 0)))
        [least, best] = [cost, { x: at.x, y: at.y }];
    }
  }
  return best;
}
