import type { Spacing } from "./problem";

export const TOP_DOWN = "td";
export const LEFT_RIGHT = "lr";
export type Direction = typeof TOP_DOWN | typeof LEFT_RIGHT;

/** Labels of hidden edges are left of a box in top-down pictures, and above it in left-to-right ones. */
const SPACINGS: Record<Direction, Spacing> = {
  td: { item: 26, rank: 34, track: 12, stub: 92, stubMore: 0 },
  lr: { item: 18, rank: 66, track: 12, stub: 15, stubMore: 13 },
};

export function spacingFor(direction: Direction): Spacing {
  return SPACINGS[direction];
}
