// Names on slices that have room for them.
import type { SliceStyle } from "./slice-style";
import type { Scene, SceneStrip } from "./scene";
import { leftEdge, rightEdge, type Part, lastEntryBefore } from "./slice-geometry";
import { laneRange } from "./tile";

const LABEL_FONT_PX = 11;
const MIN_PX = 26;
const PAD_PX = 4;
const LIGHT = "rgb(255 255 255 / 96%)";
const DARK = "rgb(16 22 32 / 94%)";

interface Label {
  x0: number;
  x1: number;
  y: number;
  name: number;
  category: number;
  strip: SceneStrip;
}

const widths = new Map<number, number>();

function textWidth(context: CanvasRenderingContext2D, code: number): number {
  let width = widths.get(code);
  if (width === undefined) {
    width = context.measureText(String.fromCodePoint(code)).width;
    widths.set(code, width);
  }
  return width;
}

/** Shorten a name to the available width. A leading `void` of C++ names is removed. */
export function fitText(context: CanvasRenderingContext2D, name: string, room: number): string {
  const text = name.startsWith("void ") ? name.slice(5) : name;
  const dots = textWidth(context, 0x2026);
  let usedCount = 0;
  let keep = 0;
  for (let slot = 0; slot < text.length; slot += 1) {
    usedCount += textWidth(context, text.codePointAt(slot) ?? 32);
    if (usedCount + dots <= room) keep = slot + 1;
    if (usedCount > room) return keep > 1 ? `${text.slice(0, keep)}…` : "";
  }
  return text;
}

function collectPart(strip: SceneStrip, part: Part, minPx: number, into: Label[]): void {
  const { tile } = part;
  const [first, last] = laneRange(tile, strip.lane);
  const until = lastEntryBefore(part, first, last, part.clip1 - 1);
  for (let entry = Math.max(first, lastEntryBefore(part, first, last, part.clip0)); entry <= until; entry += 1) {
    // Cheap test first: most entries are far too narrow.
    if (((tile.end[entry] as number) - (tile.start[entry] as number)) * part.scale < 1) continue;
    const x0 = Math.max(part.clip0, leftEdge(part, entry));
    const x1 = Math.min(part.clip1, rightEdge(part, entry));
    const before = into[into.length - 1];
    // An event that continues from the previous tile is one slice with one label.
    if (
      before &&
      before.strip === strip &&
      before.x1 === x0 &&
      before.name === tile.name[entry] &&
      (tile.count[entry] === 0 || (tile.start[entry] ?? 0) < 0)
    )
      before.x1 = x1;
    else if (x1 > x0 && (x1 - x0 >= minPx || x1 === part.clip1))
      into.push({ x0, x1, y: strip.y, name: tile.name[entry] ?? 0, category: tile.category[entry] ?? 0, strip });
  }
}

/** Draw at most `budget` labels, the widest first. */
export function drawLabels(
  context: CanvasRenderingContext2D,
  scene: Scene,
  look: SliceStyle,
  budget: number,
  dimmed: ((source: SceneStrip["source"], name: number) => boolean) | null,
  muted: string,
): void {
  const { ratio } = scene;
  const minPx = MIN_PX * ratio;
  let labels: Label[] = [];
  for (const strip of scene.strips) {
    if (strip.box.readable) for (const part of strip.parts) collectPart(strip, part, minPx, labels);
  }
  labels = labels.filter((label) => label.x1 - label.x0 >= minPx);
  if (labels.length > budget) labels = labels.sort((a, b) => b.x1 - b.x0 - (a.x1 - a.x0)).slice(0, budget);
  context.font = `${LABEL_FONT_PX}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const inkOf = (label: Label) =>
    dimmed?.(label.strip.source, label.name)
      ? muted
      : look.lightText[look.colorIndex(label.category, label.name)]
        ? LIGHT
        : DARK;
  for (const ink of [LIGHT, DARK, muted]) {
    context.fillStyle = ink;
    for (const label of labels) {
      const { strip } = label;
      if (inkOf(label) !== ink) continue;
      const y = (label.y + strip.height / 2) / ratio;
      if (y * ratio < strip.top + 4 * ratio) continue;
      const name = strip.source.names.get(label.name);
      if (!name) continue;
      const text = fitText(context, name, (label.x1 - label.x0) / ratio - 2 * PAD_PX);
      if (text) context.fillText(text, label.x0 / ratio + PAD_PX, y + 0.5);
    }
  }
}
