// Boxes: operators in the color of their family; groups with a title, a button and a count.
import { textWidth, TITLE } from "../layout/sizes";
import { isEnd } from "../labels";
import type { Box } from "./camera";
import type { Colors } from "./colors";
import { BUTTON, buttonAt } from "./hit";
import { fitText } from "./fit-text";
import { UPSTREAM, type Highlights } from "./highlights";
import { font, roundBox, type Pen } from "./pen";
import { boxOf, type Scene } from "./scene";

/** Pixels per unit from which text and corners are visible. */
const TEXT = 0.42;
const TITLES = 0.25;
const ROUND = 0.2;

export interface BoxTexts {
  operators: (n: number) => string;
}

/** Return a measurement without its share if both do not fit. */
function shortFigure(text: string, width: number): string {
  return textWidth(text) * 0.9 <= width ? text : (text.split(" · ")[0] ?? text);
}

function inView(box: Box, view: Box): boolean {
  return box.x < view.x + view.w && box.x + box.w > view.x && box.y < view.y + view.h && box.y + box.h > view.y;
}

/** Paint the backgrounds of open groups, below all edges. */
export function paintGrounds(pen: Pen, scene: Scene, view: Box, scale: number, colors: Colors): void {
  const { open, item } = scene.picture;
  for (let i = 0; i < item.length; i += 1) {
    if (!open[i]) continue;
    const box = boxOf(scene, i);
    if (!inView(box, view)) continue;
    roundBox(
      pen,
      box,
      7,
      colors.group[(scene.depth[i] as number) % colors.group.length] ?? colors.ground,
      colors.line,
      Math.max(1, 0.6 / scale),
    );
  }
}

function paintButton(pen: Pen, scene: Scene, i: number, colors: Colors): void {
  const { x, y } = buttonAt(scene, i);
  roundBox(pen, { x, y, w: BUTTON, h: BUTTON }, 4, colors.surface, colors.line);
  pen.beginPath();
  pen.moveTo(x + 4, y + BUTTON / 2);
  pen.lineTo(x + BUTTON - 4, y + BUTTON / 2);
  if (!scene.picture.open[i]) {
    pen.moveTo(x + BUTTON / 2, y + 4);
    pen.lineTo(x + BUTTON / 2, y + BUTTON - 4);
  }
  pen.strokeStyle = colors.muted;
  pen.lineWidth = 1.4;
  pen.stroke();
}

/** Return "57 operators ×12": the size of a group, and the number of equal groups. */
function groupLine(scene: Scene, item: number, words: BoxTexts): string {
  const g = item - scene.graph.nodes;
  const twins = scene.graph.twins[g] ?? 1;
  return `${words.operators(scene.graph.answer.groups.operators[g] ?? 0)}${twins > 1 ? `  ×${twins}` : ""}`;
}

function paintGroup(
  pen: Pen,
  scene: Scene,
  i: number,
  box: Box,
  scale: number,
  marks: Highlights,
  colors: Colors,
  words: BoxTexts,
): void {
  const item = scene.picture.item[i] as number;
  const open = scene.picture.open[i] === 1;
  const title = scene.labels[i]?.title ?? "";
  const share = marks.heat?.share[i] ?? NaN;
  const twins = scene.graph.twins[item - scene.graph.nodes] ?? 1;
  if (!open && twins > 1 && scale >= ROUND) {
    // A second sheet behind the box: there are several equal groups.
    roundBox(pen, { ...box, x: box.x + 4, y: box.y + 4 }, 7, colors.title[0] ?? colors.surface, colors.line);
  }
  const fill = Number.isNaN(share)
    ? (colors.title[open ? (scene.depth[i] as number) % 4 : 0] ?? colors.surface)
    : colors[marks.heat?.scale ?? "heat"](share);
  if (open) roundBox(pen, { x: box.x + 0.5, y: box.y + 0.5, w: box.w - 1, h: TITLE }, [6.5, 6.5, 0, 0], fill);
  else roundBox(pen, box, 7, fill, colors.muted, Math.max(1, 0.6 / scale));
  const family = scene.families[i];
  if (family)
    roundBox(pen, { ...box, w: 4, h: open ? TITLE : box.h }, [6.5, 0, 0, open ? 0 : 6.5], colors.family[family].strong);
  if (scale < TITLES) return;
  const room = box.w - 24 - BUTTON - 6;
  const line = (marks.heat?.text[i] ?? "") || groupLine(scene, item, words);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.fillStyle = colors.text;
  pen.font = font(12.5, 600);
  const name = fitText(title, room, 13.5);
  pen.fillText(name, box.x + 12, open ? box.y + TITLE / 2 + 0.5 : box.y + 15);
  if (scale >= TEXT) {
    pen.font = font(10.5);
    pen.fillStyle = Number.isNaN(share) ? colors.muted : colors.text;
    if (!open) pen.fillText(fitText(shortFigure(line, room), room, 10.5), box.x + 12, box.y + 31);
    else {
      const left = box.x + 12 + textWidth(name) * 1.22 + 10;
      if (left + textWidth(line) * 0.88 < box.x + box.w - BUTTON - 16)
        pen.fillText(line, left, box.y + TITLE / 2 + 0.5);
    }
  }
  paintButton(pen, scene, i, colors);
}

function paintNode(
  pen: Pen,
  scene: Scene,
  i: number,
  box: Box,
  scale: number,
  marks: Highlights,
  colors: Colors,
): void {
  const look = colors.family[scene.families[i] ?? "other"];
  const share = marks.heat?.share[i] ?? NaN;
  const fill = marks.heat ? (Number.isNaN(share) ? colors.surface : colors[marks.heat.scale](share)) : look.fill;
  if (scale < ROUND) {
    pen.fillStyle = marks.heat && !Number.isNaN(share) ? fill : look.border;
    pen.fillRect(box.x, box.y, box.w, box.h);
    return;
  }
  const label = scene.labels[i];
  const end = isEnd(scene.graph.answer.nodes.type[scene.picture.item[i] as number] ?? "");
  roundBox(pen, box, end ? box.h / 2 : 5, fill, look.border);
  if (!end) roundBox(pen, { ...box, w: 4 }, [5, 0, 0, 5], look.strong);
  if (scale < TEXT || !label) return;
  const middle = box.x + box.w / 2 + (end ? 0 : 2);
  const measured = marks.heat?.text[i] ?? "";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillStyle = colors.text;
  pen.font = font(12, 600);
  const line = measured ? shortFigure(measured, box.w - 12) : label.line;
  pen.fillText(fitText(label.title, box.w - 16, 12.8), middle, box.y + (!line ? box.h / 2 : end ? 12 : 13.5));
  pen.font = font(end ? 9.5 : 10.5, measured ? 500 : 400);
  pen.fillStyle = measured ? colors.text : colors.muted;
  pen.fillText(fitText(line, box.w - 14, 10.5), middle, box.y + (end ? 24.5 : 27.5));
}

function outline(pen: Pen, { x, y, w, h }: Box, color: string, width: number, gap: number): void {
  roundBox(pen, { x: x - gap, y: y - gap, w: w + 2 * gap, h: h + 2 * gap }, 7 + gap, null, color, width);
}

export function paintBoxes(
  pen: Pen,
  scene: Scene,
  view: Box,
  scale: number,
  marks: Highlights,
  colors: Colors,
  words: BoxTexts,
): void {
  const { item } = scene.picture;
  for (let i = 0; i < item.length; i += 1) {
    const box = boxOf(scene, i);
    if (!inView(box, view)) continue;
    const faded = marks.dim && i !== marks.selected && !marks.boxes?.[i] && !scene.picture.open[i];
    if (faded) pen.globalAlpha = 0.3;
    if (scene.graph.isGroup(item[i] as number)) paintGroup(pen, scene, i, box, scale, marks, colors, words);
    else paintNode(pen, scene, i, box, scale, marks, colors);
    pen.globalAlpha = 1;
    const line = Math.max(2, 1.6 / scale);
    const status = marks.status?.[i];
    if (status && status !== "same") outline(pen, box, colors.status[status], 1.5 * line, 2);
    const lit = marks.boxes?.[i] ?? 0;
    if (marks.found?.[i]) outline(pen, box, colors.mark, line, 3);
    if (i === marks.selected) outline(pen, box, colors.accent, 1.3 * line, 2);
    else if (lit) outline(pen, box, lit === UPSTREAM ? colors.upstream : colors.downstream, line * 0.8, 1);
    else if (i === marks.hover) outline(pen, box, colors.accent, line * 0.6, 1);
  }
}
