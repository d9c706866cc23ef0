// Highlights of the picture, and their reasons.
import type { ChangeStatus } from "../../../api/graph";

export const UPSTREAM = 1;
export const DOWNSTREAM = 2;

export interface HeatOverlay {
  /** Per box 0..1, for changes -1..1; NaN if nothing was measured. */
  share: Float32Array;
  scale: "heat" | "change";
  /** Second line of each box. */
  text: string[];
}

export interface Highlights {
  /** Boxes of the selected and the hovered item; -1 for none. */
  selected: number;
  hover: number;
  /** Per edge and box: UPSTREAM, DOWNSTREAM or 0; null without a selection. */
  edges: Uint8Array | null;
  boxes: Uint8Array | null;
  /** Whether boxes without a highlight are dimmed. */
  dim: boolean;
  /** Boxes found by a search, or containing such a box. */
  found: Uint8Array | null;
  heat: HeatOverlay | null;
  /** Per box. */
  status: (ChangeStatus | null)[] | null;
}

export const NO_HIGHLIGHTS: Highlights = {
  selected: -1,
  hover: -1,
  edges: null,
  boxes: null,
  dim: false,
  found: null,
  heat: null,
  status: null,
};
