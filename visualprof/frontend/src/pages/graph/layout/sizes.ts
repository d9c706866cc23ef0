// Box sizes computed from text without font metrics, so that a model gives the same picture on every machine.
import { groupLabel, isEnd, nodeLabel } from "../labels";
import type { Graph } from "../graph";

const NARROW_LETTERS = /[iljtfrI.,:;'|!()[\]/ ]/;
const WIDE_LETTERS = /[mwMW@%]/;

/** Return the width of text at 12 px. */
export function textWidth(text: string): number {
  let width = 0;
  for (const character of text) {
    if (character > "\u2e80") width += 12;
    else if (NARROW_LETTERS.test(character)) width += 4;
    else if (WIDE_LETTERS.test(character)) width += 10;
    else width += character >= "A" && character <= "Z" ? 8 : 6.7;
  }
  return width;
}

const NODE_HEIGHT = 38;
const END_HEIGHT = 34;
const GROUP_HEIGHT = 44;
/** Inside an open group. */
export const TITLE = 26;
export const PADDING = 16;

/** Space for a time and its share. */
const MIN_WIDTH = 104;
const MAX_WIDTH = 210;

function clampWidth(width: number, min: number, max: number): number {
  return Math.round(Math.min(max, Math.max(min, width)) / 2) * 2;
}

/** Return the sizes of all items; of groups, the folded size. */
export function boxSizes(graph: Graph): { width: Float64Array; height: Float64Array } {
  const items = graph.nodes + graph.groups;
  const width = new Float64Array(items);
  const height = new Float64Array(items);
  const widths = new Map<string, number>();
  const measure = (text: string) => {
    const stored = widths.get(text);
    if (stored !== undefined) return stored;
    const fresh = textWidth(text);
    widths.set(text, fresh);
    return fresh;
  };
  for (let n = 0; n < graph.nodes; n += 1) {
    const { title, line } = nodeLabel(graph.answer, n);
    width[n] = clampWidth(Math.max(1.08 * measure(title), 0.92 * measure(line)) + 24, MIN_WIDTH, MAX_WIDTH);
    height[n] = isEnd(graph.answer.nodes.type[n] ?? "") ? END_HEIGHT : NODE_HEIGHT;
  }
  for (let g = graph.nodes; g < items; g += 1) {
    width[g] = clampWidth(1.08 * measure(groupLabel(graph, g).title) + 74, 140, 250);
    height[g] = GROUP_HEIGHT;
  }
  return { width, height };
}
