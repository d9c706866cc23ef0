// What draws the slices: the processor, or the graphics card where there is a real one.
import type { Part } from "./slice-geometry";

/** One lane in device pixels. */
export interface Strip {
  y: number;
  height: number;
  /** Of the tile group. */
  lane: number;
  parts: readonly Part[];
  /** Painted only between these rows of pixels. */
  top: number;
  bottom: number;
}

interface Band {
  y: number;
  height: number;
  color: number;
}

export interface Column {
  x: number;
  width: number;
  color: number;
}

/** Colours are packed as slice-style.ts does. */
export interface Picture {
  width: number;
  height: number;
  ground: number;
  /** Vertical: shaded steps and grid lines, in painting order. */
  columns: readonly Column[];
  /** Horizontal: heads of groups. */
  bands: readonly Band[];
  strips: readonly Strip[];
}

export interface Renderer {
  readonly name: "software" | "webgl";
  draw: (picture: Picture) => void;
  dispose: () => void;
}
