// What lies under the pointer.
import type { Scene, SceneRow, SceneStrip } from "./scene";
import { bucket_end, entry_at, left_of, right_of, type Part } from "./spans";

/** Pointers are coarser than pixels. */
const REACH_PX = 2;

export interface Hit {
  strip: SceneStrip;
  part: Part;
  entry: number;
  event: number;
  name: number;
  category: number;
  /** Events that the pixel stands for. */
  count: number;
  /** Device pixels. */
  x0: number;
  x1: number;
}

function strip_at(scene: Scene, device_y: number): SceneStrip | null {
  return (
    scene.strips.find(
      (strip) => device_y >= Math.max(strip.y, strip.top) && device_y < Math.min(strip.bottom, strip.y + strip.height),
    ) ?? null
  );
}

export function row_at(scene: Scene, css_y: number): SceneRow | null {
  return scene.rows.find(({ row, y, top }) => css_y >= Math.max(y, top) && css_y < y + row.height) ?? null;
}

export function hit_at(scene: Scene, device_x: number, device_y: number): Hit | null {
  const strip = strip_at(scene, Math.floor(device_y));
  if (!strip) return null;
  const middle = Math.floor(device_x);
  for (let away = 0; away <= REACH_PX * scene.ratio; away += 1) {
    for (const x of away === 0 ? [middle] : [middle - away, middle + away]) {
      const hit = hit_on(strip, x);
      if (hit) return hit;
    }
  }
  return null;
}

function hit_on(strip: SceneStrip, x: number): Hit | null {
  for (const part of strip.parts) {
    const entry = entry_at(part, strip.lane, x);
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
      // Past the bucket in which they start, only the last of them is left.
      count: merged > 1 && x < Math.max(left_of(part, entry) + 1, bucket_end(part, entry)) ? merged : 1,
      x0: far_end(strip, event, part, Math.max(part.clip0, left_of(part, entry)), -1),
      x1: far_end(strip, event, part, Math.min(part.clip1, right_of(part, entry)), 1),
    };
  }
  return null;
}

/** Follows an event over the borders of tiles, to the left (-1) or right (1). */
function far_end(strip: SceneStrip, event: number, part: Part, x: number, way: -1 | 1): number {
  const step = strip.parts.indexOf(part) + way;
  const next = strip.parts[step];
  const pixel = way < 0 ? x - 1 : x;
  if (!next || (way < 0 ? x > part.clip0 : x < part.clip1)) return x;
  const entry = entry_at(next, strip.lane, pixel);
  if (entry < 0 || next.tile.event[entry] !== event) return x;
  return far_end(
    strip,
    event,
    next,
    way < 0 ? Math.max(next.clip0, left_of(next, entry)) : Math.min(next.clip1, right_of(next, entry)),
    way,
  );
}

/** Duration as far as the tile knows it: null where it is cut or stands for many. */
export function known_duration(hit: Hit): number | null {
  const { tile } = hit.part;
  const start = tile.start[hit.entry] ?? 0;
  const end = tile.end[hit.entry] ?? 0;
  return (tile.count[hit.entry] ?? 0) === 1 && start >= 0 && end <= 256 ? (end - start) * 2 ** tile.level : null;
}
