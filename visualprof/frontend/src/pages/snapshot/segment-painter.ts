// Draws the segment map on a canvas.
import { get2dContext } from "../../canvas/frames";
import { categoryColor, TEXT_COLORS } from "../../charts/palette";
import { hex, mixColors, rgb, type ThemeName } from "../../lib/color";
import { formatBytes, formatRatio } from "../../lib/format";
import { t } from "../../locales";
import { roleColor } from "./colors";
import { forEachBox, HEAD_PX, LINE_PX, type GroupLayout, type MapLayout, type Piece } from "./segment-layout";

const BOX_PX = LINE_PX - 3;
const HATCH_PX = 5;
const MIN_EDGE_PX = 3;
const FADED = 0.22;
export type PieceKind = "rounding" | "pending" | "split" | "cached" | "mixed" | "in_the_way";
export const PIECE_KINDS: readonly PieceKind[] = ["rounding", "split", "cached", "pending", "mixed", "in_the_way"];

/** Colors of the pieces that are not a block of a category. */
export function pieceColor(kind: PieceKind, theme: ThemeName): string {
  const ink = TEXT_COLORS[theme];
  return {
    rounding: ink.text,
    pending: categoryColor("runtime", theme),
    split: categoryColor("worse", theme),
    cached: hex(mixColors(rgb(ink.line), rgb(ink.surface), 0.35)),
    mixed: categoryColor("other", theme),
    in_the_way: ink.text,
  }[kind];
}

function hatch(color: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  const pen = get2dContext(tile, HATCH_PX, HATCH_PX);
  if (!pen) return color;
  pen.strokeStyle = color;
  for (const at of [-HATCH_PX, 0, HATCH_PX]) {
    pen.moveTo(at - 1, HATCH_PX + 1);
    pen.lineTo(at + HATCH_PX + 1, -1);
  }
  pen.stroke();
  return pen.createPattern(tile, "repeat") ?? color;
}

export interface MapScene {
  layout: MapLayout;
  theme: ThemeName;
  /** Whether pieces that do not meet the filter are faded. */
  filtered: boolean;
  block: number | null;
}

export function paintMap(canvas: HTMLCanvasElement, scene: MapScene): void {
  const { layout, theme } = scene;
  const ratio = Math.min(window.devicePixelRatio || 1, 16_000 / Math.max(1, layout.height));
  const pen = get2dContext(canvas, Math.round(layout.width * ratio), Math.round(layout.height * ratio));
  if (!pen) return;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, layout.width, layout.height);
  pen.font = "11.5px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const fills = new Map(PIECE_KINDS.map((kind) => [kind, hatch(pieceColor(kind, theme))]));
  for (const home of layout.groups) {
    drawHead(pen, home, theme, layout.width);
    for (const piece of home.group.pieces) drawPiece(pen, scene, home, piece, fills);
    drawEdges(pen, scene, home);
  }
}

function drawHead(pen: CanvasRenderingContext2D, { group, top }: GroupLayout, theme: ThemeName, width: number): void {
  const ink = TEXT_COLORS[theme];
  const text = t(
    "snapshot.group",
    {
      pool: group.pool === "default" || group.pool === "" ? t("snapshot.default_pool") : group.pool,
      stream: group.stream,
      kind: t(`snapshot.segment.${group.kind.replace(" ", "_")}`),
      n: group.segments,
      used: formatBytes(group.used),
      bytes: formatBytes(group.bytes),
      share: formatRatio(group.bytes > 0 ? group.used / group.bytes : 0),
    },
    group.segments,
  );
  pen.fillStyle = ink.muted;
  pen.textAlign = "left";
  pen.fillText(text, 0, top + HEAD_PX / 2 + 1, width);
}

function drawPiece(
  pen: CanvasRenderingContext2D,
  { layout, theme, filtered }: MapScene,
  home: GroupLayout,
  piece: Piece,
  fills: ReadonlyMap<string, CanvasPattern | string>,
): void {
  const ink = TEXT_COLORS[theme];
  const isBlock = piece.block >= 0;
  pen.globalAlpha = filtered && !piece.matches ? FADED : 1;
  const fill = isBlock ? roleColor(piece.category ?? "unknown", theme) : pieceColor(piece.kind as PieceKind, theme);
  forEachBox(layout, home, piece.start, piece.bytes, (x, y, width) => {
    pen.fillStyle = piece.kind === "split" ? ink.surface : fill;
    pen.fillRect(x, y, width, BOX_PX);
    if (piece.kind === "split" || piece.kind === "pending") {
      pen.fillStyle = fills.get(piece.kind) ?? fill;
      pen.fillRect(x, y, width, BOX_PX);
    } else if (piece.kind === "mixed") {
      const share = piece.bytes > 0 ? piece.used / piece.bytes : 0;
      pen.fillStyle = ink.surface;
      pen.fillRect(x, y, width, BOX_PX * (1 - share));
    }
    if (isBlock && width > MIN_EDGE_PX) {
      pen.fillStyle = ink.surface;
      pen.fillRect(x + width - 0.5, y, 0.5, BOX_PX);
    }
  });
  if (isBlock && piece.bytes > piece.requested)
    forEachBox(layout, home, piece.start + piece.requested, piece.bytes - piece.requested, (x, y, width) => {
      pen.fillStyle = fills.get("rounding") ?? fill;
      pen.fillRect(x, y, width, BOX_PX);
    });
  pen.globalAlpha = 1;
}

/** Draw the borders of segments, of the blocks in the way, and of the shown block. */
function drawEdges(pen: CanvasRenderingContext2D, { layout, theme, block }: MapScene, home: GroupLayout): void {
  const ink = TEXT_COLORS[theme];
  pen.fillStyle = ink.text;
  for (const start of home.group.starts)
    forEachBox(layout, home, start, layout.bytesPerPx, (x, y) => pen.fillRect(x, y - 1, 1, BOX_PX + 2));
  pen.strokeStyle = ink.text;
  for (const piece of home.group.pieces) {
    if (!piece.inTheWay && (block === null || piece.block !== block)) continue;
    pen.lineWidth = piece.block === block ? 2 : 1.2;
    pen.setLineDash(piece.block === block ? [] : [3, 2]);
    forEachBox(layout, home, piece.start, piece.bytes, (x, y, width) => {
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), BOX_PX - 1);
    });
  }
  pen.setLineDash([]);
}
