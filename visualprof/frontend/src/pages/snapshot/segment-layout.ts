// The lines of the segment map: segments of a pool and stream follow each other and continue on the next line.
import type { HeapMap } from "../../api";

export const LINE_PX = 15;
export const HEAD_PX = 20;

export interface Piece {
  segment: number;
  bytes: number;
  requested: number;
  used: number;
  kind: string;
  category: string | null;
  /** -1 for pieces that are not a block. */
  block: number;
  inTheWay: boolean;
  /** Whether it is a block that meets the filter. */
  matches: boolean;
  /** Bytes from the start of its group. */
  start: number;
}

export interface SegmentGroup {
  pool: string;
  stream: string;
  kind: string;
  bytes: number;
  used: number;
  segments: number;
  pieces: Piece[];
  /** Bytes from the start of the group to each segment. */
  starts: number[];
}

/** Group the segments by pool, stream and kind, in the server's order. */
export function groupSegments(map: HeapMap): SegmentGroup[] {
  const { segments, pieces } = { segments: map.segments.columns, pieces: map.pieces.columns };
  const groups: SegmentGroup[] = [];
  const place: { group: SegmentGroup; start: number }[] = [];
  segments.bytes.forEach((bytes, row) => {
    const key = { pool: segments.pool[row] ?? "", stream: segments.stream[row] ?? "", kind: segments.kind[row] ?? "" };
    let group = groups.at(-1);
    if (!group || group.pool !== key.pool || group.stream !== key.stream || group.kind !== key.kind) {
      group = { ...key, bytes: 0, used: 0, segments: 0, pieces: [], starts: [] };
      groups.push(group);
    }
    place.push({ group, start: group.bytes });
    group.starts.push(group.bytes);
    group.bytes += bytes ?? 0;
    group.used += segments.used_bytes[row] ?? 0;
    group.segments += 1;
  });
  pieces.bytes.forEach((bytes, row) => {
    const segment = Number(pieces.segment[row]);
    const home = place[segment];
    home?.group.pieces.push({
      segment,
      bytes: bytes ?? 0,
      requested: pieces.requested_bytes[row] ?? 0,
      used: pieces.used_bytes[row] ?? 0,
      kind: pieces.kind[row] ?? "",
      category: pieces.category[row] ?? null,
      block: Number(pieces.block[row] ?? -1),
      inTheWay: pieces.in_the_way[row] === true,
      matches: pieces.matches[row] === true,
      start: home.start + (pieces.offset_bytes[row] ?? 0),
    });
  });
  return groups;
}

export interface GroupLayout {
  group: SegmentGroup;
  /** Top edge of its heading. */
  top: number;
  lines: number;
}

export interface MapLayout {
  groups: GroupLayout[];
  height: number;
  bytesPerPx: number;
  width: number;
}

/** Lay out the groups with about `lines` full lines. */
export function layOutMap(groups: readonly SegmentGroup[], width: number, lines: number): MapLayout {
  const total = groups.reduce((sum, group) => sum + group.bytes, 0);
  const bytesPerPx = Math.max(1, total / Math.max(1, width * lines));
  let top = 0;
  const placed = groups.map((group) => {
    const layout = { group, top, lines: Math.max(1, Math.ceil(group.bytes / bytesPerPx / Math.max(1, width))) };
    top += HEAD_PX + layout.lines * LINE_PX;
    return layout;
  });
  return { groups: placed, height: top, bytesPerPx, width };
}

/** Call `draw` for each rectangle of a range of bytes of a group. */
export function forEachBox(
  layout: MapLayout,
  { top, lines }: GroupLayout,
  start: number,
  bytes: number,
  draw: (x: number, y: number, width: number) => void,
): void {
  let from = start / layout.bytesPerPx;
  const to = (start + bytes) / layout.bytesPerPx;
  while (from < to) {
    const line = Math.min(lines - 1, Math.floor(from / layout.width));
    const end = line === lines - 1 ? to : Math.min(to, (line + 1) * layout.width);
    draw(from - line * layout.width, top + HEAD_PX + line * LINE_PX, end - from);
    from = end;
  }
}

/** Return the piece at a point, or the group whose heading it is. */
export function findPiece(
  layout: MapLayout,
  x: number,
  y: number,
): { group: SegmentGroup; piece: Piece | null } | null {
  const home = layout.groups.findLast(({ top }) => y >= top);
  if (!home || x < 0 || x >= layout.width) return null;
  const line = Math.floor((y - home.top - HEAD_PX) / LINE_PX);
  if (line < 0) return { group: home.group, piece: null };
  if (line >= home.lines) return null;
  const bytes = (line * layout.width + x) * layout.bytesPerPx;
  const { pieces } = home.group;
  let [low, high] = [0, pieces.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((pieces[middle]?.start ?? 0) <= bytes) low = middle + 1;
    else high = middle;
  }
  const piece = pieces[low - 1];
  return piece && bytes < piece.start + piece.bytes ? { group: home.group, piece } : null;
}
