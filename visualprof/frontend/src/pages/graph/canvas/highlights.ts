// What is emphasised over the plain picture, and by what.
import type { ChangeStatus } from "../../../api/graph";

export const UPSTREAM = 1;
export const DOWNSTREAM = 2;

export interface HeatOverlay {
  /** 0..1 by box, of changes -1..1; NaN where nothing was measured. */
  share: Float32Array;
  scale: "heat" | "change";
  /** Second line of each box. */
  text: string[];
}

export interface Highlights {
  /** Boxes of the selected and the pointed item; -1 for none. */
  selected: number;
  hover: number;
  /** By edge and by box: UPSTREAM, DOWNSTREAM or 0; null without a selection. */
  edges: Uint8Array | null;
  boxes: Uint8Array | null;
  /** Whether what is not marked steps back. */
  dim: boolean;
  /** Boxes that a search found or that hold something found. */
  found: Uint8Array | null;
  heat: HeatOverlay | null;
  /** By box. */
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
