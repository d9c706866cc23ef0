// The critical path: everything else is dimmed, and arrows connect its pieces.
import { drawArrow, type Box } from "./arrow";
import { laneBoxes } from "./lanes";
import type { Surface } from "./surface";
import type { SceneRow } from "./scene";
import type { TraceSource } from "./trace-source";
import { lastEntryBefore, leftEdge, rightEdge, type Part } from "./slice-geometry";
import { laneRange } from "./tile";

const DIM_ALPHA = 0.74;
/** With more visible pieces, arrows would hide the pieces that they connect. */
const MAX_ARROWS = 160;
const MIN_PX = 2;

interface Piece extends Box {
  /** Several pieces that are too close to distinguish. */
  isMerged: boolean;
}

export function drawPath(surface: Surface, paths: ReadonlyMap<TraceSource, readonly Part[]>): void {
  const { context, scene, colors: ink } = surface;
  const pieces = new Map<TraceSource, Piece[]>();
  context.fillStyle = ink.ground;
  context.globalAlpha = DIM_ALPHA;
  for (const line of scene.rows) {
    const sourcePieces = pieces.get(line.source) ?? [];
    pieces.set(line.source, sourcePieces);
    sourcePieces.push(...dimRow(surface, line, paths.get(line.source) ?? []));
  }
  context.globalAlpha = 1;
  context.fillStyle = ink.accent;
  for (const piece of [...pieces.values()].flat())
    if (piece.y >= piece.top) context.fillRect(piece.x0, piece.y, piece.x1 - piece.x0, 2);
  for (const sourcePieces of pieces.values()) drawArrows(surface, sourcePieces);
}

/** Dim the row except for the path, and return the path's range. */
function dimRow({ context, scene }: Surface, { row, y, top, counters }: SceneRow, parts: readonly Part[]): Piece[] {
  const right = scene.width / scene.ratio;
  const out: Piece[] = [];
  const boxes = laneBoxes(row);
  for (const track of new Set(boxes.map((box) => box.track))) {
    const lanes = boxes.filter((box) => box.track === track);
    const from = y + Math.min(...lanes.map((box) => box.top));
    const height = y + Math.max(...lanes.map((box) => box.top + box.height)) - from;
    if (from + height <= top) continue;
    const ownPieces = piecesOf(parts, track.id, scene.ratio).map((piece) => ({ ...piece, y: from, height, top }));
    let x = 0;
    const cover = (until: number) =>
      until > x && context.fillRect(x, Math.max(from, top), until - x, from + height - Math.max(from, top));
    for (const piece of ownPieces) {
      cover(piece.x0);
      x = Math.max(x, piece.x1);
    }
    cover(right);
    out.push(...ownPieces);
  }
  if (counters.length > 0) context.fillRect(0, Math.max(y, top), right, y + row.height - Math.max(y, top));
  return out;
}

/** Return the pieces of a track in order. A piece that continues in the next tile is one piece. */
function piecesOf(
  parts: readonly Part[],
  track: number,
  ratio: number,
): { x0: number; x1: number; isMerged: boolean }[] {
  const out: { x0: number; x1: number; isMerged: boolean }[] = [];
  for (const part of parts) {
    const [first, last] = laneRange(part.tile, track);
    const until = lastEntryBefore(part, first, last, part.clip1 - 1);
    for (let entry = Math.max(first, lastEntryBefore(part, first, last, part.clip0)); entry <= until; entry += 1) {
      const x0 = Math.max(part.clip0, leftEdge(part, entry)) / ratio;
      const x1 = Math.max(Math.min(part.clip1, rightEdge(part, entry)) / ratio, x0 + MIN_PX);
      const before = out[out.length - 1];
      if (x1 - MIN_PX < part.clip0 / ratio) continue;
      if (part.tile.count[entry] === 0 && before && before.x1 >= x0 - 1) before.x1 = Math.max(before.x1, x1);
      else out.push({ x0, x1, isMerged: (part.tile.count[entry] ?? 0) > 1 });
    }
  }
  return out;
}

function drawArrows(surface: Surface, pieces: Piece[]): void {
  if (pieces.length > MAX_ARROWS) return;
  pieces.sort((a, b) => a.x0 - b.x0);
  pieces.forEach((to, index) => {
    const from = pieces[index - 1];
    if (from && from.y !== to.y && !from.isMerged && !to.isMerged && Math.max(from.y, to.y) >= to.top)
      drawArrow(surface, from, to);
  });
}
