// Draws the slices: in software, or on a graphics card if there is a real one.
import type { Part } from "./slice-geometry";

/** One lane in device pixels. */
export interface Strip {
  y: number;
  height: number;
  /** Lane of the tile group. */
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

/** Colors are packed as in slice-style.ts. */
export interface Picture {
  width: number;
  height: number;
  ground: number;
  /** Vertical: shaded steps and grid lines, in painting order. */
  columns: readonly Column[];
  /** Horizontal: group heads. */
  bands: readonly Band[];
  strips: readonly Strip[];
}

export interface Renderer {
  readonly name: "software" | "webgl";
  draw: (picture: Picture) => void;
  dispose: () => void;
}
