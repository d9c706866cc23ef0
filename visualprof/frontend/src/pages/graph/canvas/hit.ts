// The element under the pointer: the innermost box, its button, or an edge.
import { TITLE } from "../layout/sizes";
import type { Scene } from "./scene";

export const BUTTON = 15;
/** Between the button and the box's right border. */
const BUTTON_GAP = 8;

export interface Hit {
  box: number;
  /** On the + or - of a group. */
  button: boolean;
  /** On the title bar of an open group; its inside can be dragged like the background. */
  title: boolean;
}

/** Return the upper left corner of the button of box i. */
export function buttonAt(scene: Scene, i: number): { x: number; y: number } {
  const { x, y, w, h, open } = scene.picture;
  const hitHeight = open[i] ? TITLE : (h[i] as number);
  return {
    x: (x[i] as number) + (w[i] as number) - BUTTON - BUTTON_GAP,
    y: (y[i] as number) + (hitHeight - BUTTON) / 2,
  };
}

export function hitAt(scene: Scene, px: number, py: number, slack: number): Hit | null {
  const { x, y, w, h, open, item } = scene.picture;
  // Inner boxes come later.
  for (let i = item.length - 1; i >= 0; i -= 1) {
    if (
      px < (x[i] as number) ||
      py < (y[i] as number) ||
      px > (x[i] as number) + (w[i] as number) ||
      py > (y[i] as number) + (h[i] as number)
    )
      continue;
    const group = scene.graph.isGroup(item[i] as number);
    const at = buttonAt(scene, i);
    const button = group && px >= at.x - 4 - slack && py >= at.y - 4 - slack && py <= at.y + BUTTON + 4 + slack;
    return { box: i, button, title: open[i] === 1 && py <= (y[i] as number) + TITLE };
  }
  return null;
}
