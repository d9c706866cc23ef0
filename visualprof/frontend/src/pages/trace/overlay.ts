// The overlay above the slices: labels, counters, matches, the selection and its arrows, markers, the area.
import { categoryColor } from "../../charts/palette";
import { BASE } from "../../compare/step-alignment";
import { drawCounter } from "./counters";
import type { Hit } from "./hit";
import { drawArrow, type Box } from "./arrow";
import { drawLabels } from "./labels";
import { laneBox } from "./lanes";
import type { Layout, Row } from "./layout";
import type { Link, EventLocation, Range } from "./model";
import { drawPath } from "./path";
import { timeToX, type Scene } from "./scene";
import type { TraceSource } from "./trace-source";
import type { Surface } from "./surface";
import { drawSteps, STEPS_PX } from "./steps";

interface Spot {
  source: TraceSource;
  place: EventLocation;
}

/** Everything that is currently marked. */
export interface OverlayMarks {
  selected: Spot | null;
  /** The counterpart in the other run. */
  counterpart: Spot | null;
  links: readonly Link[];
  hover: Hit | null;
  area: (Range & { tracks: readonly string[] }) | null;
  markers: readonly number[];
  /** CSS pixels; null if the pointer is elsewhere. */
  cursor: number | null;
  matches: readonly { source: TraceSource; places: readonly EventLocation[] }[];
  searching: boolean;
}

const rowIndex = new WeakMap<Layout, Map<string, Row>>();

function rowsByTrack(layout: Layout): Map<string, Row> {
  let index = rowIndex.get(layout);
  if (!index) {
    index = new Map();
    for (const row of [...layout.rows, ...layout.pinned]) {
      if (row.folded) for (const item of row.below) index.set(item.key, row);
      if (row.item) index.set(row.item.key, row);
    }
    rowIndex.set(layout, index);
  }
  return index;
}

export function trackRow(layout: Layout, worker: number, track: number): Row | undefined {
  return rowsByTrack(layout).get(`${worker}.${track}`);
}

/** Return the box of an event in CSS pixels, even if it is scrolled out of view; null if its track is not shown. */
export function eventBox(surface: Surface, { source, place }: Spot): Box | null {
  const { scene, layout, scroll } = surface;
  const row = trackRow(layout, source.id.worker, place.track);
  const lane = row && laneBox(row, place.track, place.lane);
  if (!row || !lane) return null;
  const start = timeToX(scene, place.start_ns + source.offset) / scene.ratio;
  const end = timeToX(scene, place.start_ns + place.duration_ns + source.offset) / scene.ratio;
  const y = row.pinned ? row.y : row.y + layout.pinnedHeight - scroll;
  return {
    x0: start,
    x1: Math.max(end, start + 1 / scene.ratio),
    y: y + lane.top,
    height: lane.height,
    top: row.pinned ? 0 : layout.pinnedHeight,
  };
}

const LABELS_AT_REST = 4000;
const LABELS_IN_MOTION = 350;

export function drawOverlay(surface: Surface, marks: OverlayMarks, moving: boolean, baseStep: string | null): void {
  const { context, scene, layout, colors: ink } = surface;
  const [width, height] = [scene.width / scene.ratio, scene.height / scene.ratio];
  context.setTransform(scene.ratio, 0, 0, scene.ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  drawLines(surface, width);
  drawBaseSteps(surface, width, baseStep);
  for (const line of scene.rows)
    if (line.counters.length > 0) drawCounter(context, scene, line, categoryColor("memory", surface.theme), ink);
  drawFound(surface, marks);
  if (scene.paths) drawPath(surface, scene.paths);
  const dimmed = marks.searching ? (source: TraceSource, name: number) => !source.names.matches(name) : null;
  drawLabels(context, scene, surface.style, moving ? LABELS_IN_MOTION : LABELS_AT_REST, dimmed, ink.muted);
  drawArea(surface, marks, height);
  if (marks.hover) outline(surface, hitBox(scene, marks.hover), ink.text, 1);
  if (marks.selected) {
    const box = eventBox(surface, marks.selected);
    for (const link of marks.links) drawLink(surface, marks.selected, link);
    if (box) outline(surface, box, ink.accent, 2);
    const counterpart = marks.counterpart && eventBox(surface, marks.counterpart);
    if (counterpart) outline(surface, counterpart, ink.accent, 2, [4, 3]);
  }
  if (layout.pinnedHeight > 0) {
    context.fillStyle = ink.muted;
    context.fillRect(0, layout.pinnedHeight - 1, width, 1);
  }
  for (const marker of marks.markers) drawVertical(surface, timeToX(scene, marker) / scene.ratio, height, ink.mark, []);
  if (marks.cursor !== null) drawVertical(surface, marks.cursor, height, ink.muted, [2, 3]);
}

function drawLines(surface: Surface, width: number): void {
  const { context, scene, colors: ink } = surface;
  context.fillStyle = ink.line;
  for (const { row, y, top } of scene.rows) {
    const bottom = y + row.height - 1;
    if (bottom >= top) context.fillRect(0, bottom, width, 1);
  }
}

/** The axis has the steps of the current run; the steps of the base are in its group head. */
function drawBaseSteps({ context, scene, colors: ink }: Surface, width: number, selected: string | null): void {
  const head = scene.rows.find(
    ({ row, y, top }) => row.kind === "worker" && row.worker === BASE && !row.folded && y >= top,
  );
  if (head)
    drawSteps(
      context,
      head.source,
      (ns) => timeToX(scene, ns) / scene.ratio,
      width,
      ink,
      selected,
      head.y + (head.row.height - STEPS_PX) / 2,
    );
}

function hitBox(scene: Scene, hit: Hit): Box {
  const { ratio } = scene;
  return {
    x0: hit.x0 / ratio,
    x1: hit.x1 / ratio,
    y: hit.strip.y / ratio,
    height: hit.strip.height / ratio,
    top: hit.strip.top / ratio,
  };
}

function outline({ context, scene }: Surface, box: Box, color: string, weight: number, dash: number[] = []): void {
  const right = scene.width / scene.ratio;
  if (box.x1 < 0 || box.x0 > right || box.y + box.height < box.top) return;
  const x0 = Math.max(box.x0, -weight * 2);
  const x1 = Math.min(Math.max(box.x1, box.x0 + 3), right + weight * 2);
  context.strokeStyle = color;
  context.lineWidth = weight;
  context.setLineDash(dash);
  context.strokeRect(x0 - weight / 2, Math.max(box.y, box.top) - weight / 2, x1 - x0 + weight, box.height + weight);
  context.setLineDash([]);
}

/** Draw a line below each match, so that matches in merged slices are also visible. */
function drawFound(surface: Surface, marks: OverlayMarks): void {
  const { context, scene, colors: ink } = surface;
  const right = scene.width / scene.ratio;
  context.fillStyle = ink.mark;
  for (const { source, places } of marks.matches) {
    let lastText = "";
    for (const place of places) {
      const start = timeToX(scene, place.start_ns + source.offset) / scene.ratio;
      const end = timeToX(scene, place.start_ns + place.duration_ns + source.offset) / scene.ratio;
      const at = `${Math.round(start)} ${place.track} ${place.lane}`;
      if (end < 0 || start > right || at === lastText) continue;
      lastText = at;
      const box = eventBox(surface, { source, place });
      if (box && box.y >= box.top)
        context.fillRect(
          Math.max(0, start),
          box.y + box.height - 1,
          Math.max(2, Math.min(end, right) - Math.max(0, start)),
          2,
        );
    }
  }
}

function drawArea(
  { context, scene, colors: ink, layout, scroll }: Surface,
  { area }: OverlayMarks,
  height: number,
): void {
  if (!area) return;
  const x0 = timeToX(scene, area.start) / scene.ratio;
  const x1 = timeToX(scene, area.end) / scene.ratio;
  context.fillStyle = ink.accent;
  context.globalAlpha = 0.12;
  const rows = area.tracks.map((key) => rowsByTrack(layout).get(key)).filter((row) => row !== undefined);
  if (area.tracks.length === 0) context.fillRect(x0, 0, x1 - x0, height);
  for (const row of new Set(rows)) {
    const y = row.pinned ? row.y : row.y + layout.pinnedHeight - scroll;
    const top = row.pinned ? 0 : layout.pinnedHeight;
    if (y + row.height > top) context.fillRect(x0, Math.max(y, top), x1 - x0, y + row.height - Math.max(y, top));
  }
  context.globalAlpha = 0.8;
  context.fillRect(Math.round(x0), 0, 1, height);
  context.fillRect(Math.round(x1), 0, 1, height);
  context.globalAlpha = 1;
}

function drawVertical({ context }: Surface, x: number, height: number, color: string, dash: number[]): void {
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, 0);
  context.lineTo(Math.round(x) + 0.5, height);
  context.stroke();
  context.setLineDash([]);
}

/** Draw a curve from the cause to its effect. */
function drawLink(surface: Surface, selected: Spot, link: Link): void {
  const { scene } = surface;
  const other: Spot = { source: selected.source, place: link };
  const [from, to] = link.direction === "to" ? [selected, other] : [other, selected];
  const [a, b] = [eventBox(surface, from), eventBox(surface, to)];
  if (!a || !b) return;
  const right = scene.width / scene.ratio;
  if (Math.max(a.x1, b.x0) < -50 || Math.min(a.x0, b.x0) > right + 50) return;
  drawArrow(surface, a, b);
}
