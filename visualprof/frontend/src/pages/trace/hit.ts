// The element under the pointer.
import type { Scene, SceneRow, SceneStrip } from "./scene";
import { bucketEnd, entryAt, leftEdge, rightEdge, type Part } from "./slice-geometry";

/** Tolerance, because pointers are less precise than pixels. */
const REACH_PX = 2;

export interface Hit {
  strip: SceneStrip;
  part: Part;
  entry: number;
  event: number;
  name: number;
  category: number;
  /** Number of events at the pixel. */
  count: number;
  /** Device pixels. */
  x0: number;
  x1: number;
}

function stripAt(scene: Scene, deviceY: number): SceneStrip | null {
  return (
    scene.strips.find(
      (strip) => deviceY >= Math.max(strip.y, strip.top) && deviceY < Math.min(strip.bottom, strip.y + strip.height),
    ) ?? null
  );
}

export function rowAt(scene: Scene, cssY: number): SceneRow | null {
  return scene.rows.find(({ row, y, top }) => cssY >= Math.max(y, top) && cssY < y + row.height) ?? null;
}

export function hitAt(scene: Scene, deviceX: number, deviceY: number): Hit | null {
  const strip = stripAt(scene, Math.floor(deviceY));
  if (!strip) return null;
  const middle = Math.floor(deviceX);
  for (let away = 0; away <= REACH_PX * scene.ratio; away += 1) {
    for (const x of away === 0 ? [middle] : [middle - away, middle + away]) {
      const hit = hitOn(strip, x);
      if (hit) return hit;
    }
  }
  return null;
}

function hitOn(strip: SceneStrip, x: number): Hit | null {
  for (const part of strip.parts) {
    const entry = entryAt(part, strip.lane, x);
    if (entry < 0) continue;
    const { tile } = part;
    const merged = tile.count[entry] ?? 0;
    const event = tile.event[entry] ?? 0;
    return {
      strip,
      part,
      entry,
      event,
      name: tile.name[entry] ?? 0,
      category: tile.category[entry] ?? 0,
      // After the bucket in which they start, only the last of them continues.
      count: merged > 1 && x < Math.max(leftEdge(part, entry) + 1, bucketEnd(part, entry)) ? merged : 1,
      x0: entryEdge(strip, event, part, Math.max(part.clip0, leftEdge(part, entry)), -1),
      x1: entryEdge(strip, event, part, Math.min(part.clip1, rightEdge(part, entry)), 1),
    };
  }
  return null;
}

/** Follow an event across tiles to the left (-1) or right (1). */
function entryEdge(strip: SceneStrip, event: number, part: Part, x: number, direction: -1 | 1): number {
  const step = strip.parts.indexOf(part) + direction;
  const next = strip.parts[step];
  const pixel = direction < 0 ? x - 1 : x;
  if (!next || (direction < 0 ? x > part.clip0 : x < part.clip1)) return x;
  const entry = entryAt(next, strip.lane, pixel);
  if (entry < 0 || next.tile.event[entry] !== event) return x;
  return entryEdge(
    strip,
    event,
    next,
    direction < 0 ? Math.max(next.clip0, leftEdge(next, entry)) : Math.min(next.clip1, rightEdge(next, entry)),
    direction,
  );
}

/** Return the duration if the tile knows it: null if the slice is cut or merged. */
export function knownDuration(hit: Hit): number | null {
  const { tile } = hit.part;
  const start = tile.start[hit.entry] ?? 0;
  const end = tile.end[hit.entry] ?? 0;
  return (tile.count[hit.entry] ?? 0) === 1 && start >= 0 && end <= 256 ? (end - start) * 2 ** tile.level : null;
}
